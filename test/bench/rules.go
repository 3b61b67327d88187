//go:build linux

package main

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed-11a05479/kube-proxy/test/bench/synthetic"
)

// Rulesets are compared in turns, in which each is loaded into another namespace, and in short rounds. A load on the machine and
// a namespace's place in memory then affect all of them equally.
const connectsInRound = 40

// singleRule is the name of the ruleset with one rule for each address that is measured.
const singleRule = "dnat"

// ruleset is a ruleset that is compared with others, without the program that wrote it.
type ruleset struct {
	name, text string
	// service and direct are connect times; established are the long-lived connections of each protocol.
	service, direct []time.Duration
	established     [len(established)]trafficSide
}

// established are the protocols of long-lived connections.
var established = [...]corev1.Protocol{corev1.ProtocolUDP, corev1.ProtocolTCP}

// place is a world in which rulesets are measured, with its own Service for each of those protocols.
type place struct {
	*bench
	numbers [len(established)]int
	sides   [len(established)]*trafficSide
	queue   int
}

// compareRules compares rulesets: those of programs, those of files, and single rules.
func (o *options) compareRules(out io.Writer) error {
	for _, mode := range o.modes {
		for _, size := range mode.sizes {
			mode.plan.until = time.Now().Add(o.within)
			if err := o.compareRulesOf(out, mode, size); err != nil {
				return fmt.Errorf("%s %s: %w", mode.name, size, err)
			}
		}
	}
	return nil
}

func (o *options) compareRulesOf(out io.Writer, mode *mode, size synthetic.Size) (err error) {
	var places []*place
	defer func() {
		for _, p := range places {
			err = errors.Join(err, p.close())
		}
	}()
	var all []*ruleset
	for _, name := range o.rules {
		w, err := newWorld(size)
		if err != nil {
			return err
		}
		p := &place{bench: &bench{plan: &mode.plan, world: w, run: newRun(name, mode.name, size), program: name, prober: &prober{from: w.asker}}}
		places = append(places, p)
		for i, protocol := range established {
			p.numbers[i] = p.CreateWith(protocol, 1)
		}
		text, err := p.rules(name)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		file := filepath.Join(o.folder, fmt.Sprintf("%s-%s-%d.rules", mode.name, size, len(all))) // to edit and compare again
		if err := errors.Join(os.MkdirAll(o.folder, 0o755), os.WriteFile(file, []byte(text), 0o644)); err != nil {
			return err
		}
		all = append(all, &ruleset{name: name, text: text})
	}
	for turn := range places {
		if err := o.turn(places, append(all[turn:len(all):len(all)], all[:turn]...)); err != nil {
			return err
		}
	}
	fmt.Fprintf(out, "%s %s, compared with %s:\n", mode.name, size, all[0].name)
	for _, r := range all {
		r.compare(out, all[0])
	}
	return nil
}

// rules returns a ruleset as text.
func (p *place) rules(name string) (string, error) {
	number := p.Size().Services / 2
	if name == singleRule {
		rule := func(number int, protocol corev1.Protocol) string {
			return fmt.Sprintf("ip daddr %v %s dport %d dnat to %v:%d;", synthetic.VIP(number).Addr(), strings.ToLower(string(protocol)),
				synthetic.ServicePort, p.Endpoints(number)[0], synthetic.EndpointPort)
		}
		return "table ip bench { chain c { type nat hook prerouting priority dstnat; " + rule(number, corev1.ProtocolTCP) +
			rule(p.numbers[0], established[0]) + rule(p.numbers[1], established[1]) + " }; }", nil
	}
	if info, err := os.Stat(name); err != nil || info.Mode()&0o111 == 0 {
		text, err := os.ReadFile(name)
		return string(text), err
	}
	if err := p.launch(atOnce(p.run.Mode)); err != nil {
		return "", err
	}
	_, err := p.wait(number, func() (time.Time, func(netip.Addr) bool) { return p.process.started, anyEndpoint })
	if err == nil {
		err = p.settle()
	}
	if err != nil {
		return "", err
	}
	if err := p.process.stop(); err != nil {
		return "", err
	}
	p.prober.alive = nil
	list := []string{"nft", "list", "ruleset"}
	if p.run.Mode == "iptables" {
		list = []string{"iptables-save"}
	}
	text, err := p.node.Command(list[0], list[1:]...).Output()
	// The objects that Kubernetes' rules count with exist only in the namespace that its kube-proxy ran in.
	return accounting.ReplaceAllString(string(text), ""), err
}

var accounting = regexp.MustCompile(`-m nfacct --nfacct-name +\S+ `)

// turn measures each ruleset in the place of the same index.
func (o *options) turn(places []*place, rulesets []*ruleset) (err error) {
	entered := 0
	defer func() {
		for _, p := range places[:entered] {
			err = errors.Join(err, p.leave())
		}
	}()
	for i, p := range places {
		if err := p.enter(rulesets[i]); err != nil {
			return fmt.Errorf("%s: %w", rulesets[i].name, err)
		}
		entered++
	}
	for round := range o.rounds + 1 {
		for i := range places {
			at := (i + round) % len(places)
			if err := places[at].round(rulesets[at], round); err != nil {
				return fmt.Errorf("%s: %w", rulesets[at].name, err)
			}
		}
	}
	return nil
}

// enter loads a ruleset and opens the long-lived connections.
func (p *place) enter(r *ruleset) error {
	load := func(text, name string, args ...string) error {
		command := p.node.Command(name, args...)
		command.Stdin = strings.NewReader(text)
		_, err := command.Output()
		return err
	}
	const flush = "flush ruleset\n"
	var err error
	if strings.HasPrefix(r.text, "#") || strings.HasPrefix(r.text, "*") {
		err = errors.Join(load(flush, "nft", "-f", "-"), load(r.text, "iptables-restore", "-w"))
	} else {
		err = load(flush+r.text, "nft", "-f", "-")
	}
	if err != nil {
		return err
	}
	if err := p.answers.Close(); err != nil {
		return err
	}
	for i, protocol := range established {
		number := p.numbers[i]
		p.sides[i] = &trafficSide{client: p.asker, server: p.server, to: synthetic.VIP(number),
			endpoint: netip.AddrPortFrom(p.Endpoints(number)[0], synthetic.EndpointPort)}
		if err := p.sides[i].open(protocol, p.deadline()); err != nil {
			return err
		}
	}
	if err := p.serve(); err != nil {
		return err
	}
	p.queue, err = p.stopAccepting()
	return err
}

// leave undoes enter, apart from the rules.
func (p *place) leave() error {
	err := p.startAccepting(p.queue)
	for _, side := range p.sides {
		err = errors.Join(err, side.close())
	}
	return err
}

// round measures a ruleset. The first round is not counted.
func (p *place) round(r *ruleset, round int) error {
	service, direct := p.connectTargets()
	took, err := p.prober.connects(connectsInRound, service, direct)
	if err == nil {
		err = empty(p.queue)
	}
	if err != nil {
		return err
	}
	if round > 0 {
		r.service, r.direct = append(r.service, took[0]...), append(r.direct, took[1]...)
	}
	for i, side := range p.sides {
		trips, each, err := side.flows[round%len(side.flows)].round()
		if err != nil {
			return err
		}
		if sum := &r.established[i]; round > 0 {
			sum.trips, sum.packets = append(sum.trips, trips...), append(sum.packets, each)
		}
	}
	return nil
}

// compare prints the times of a ruleset, and their ratios to those of another one.
func (r *ruleset) compare(out io.Writer, o *ruleset) {
	line := func(what string, a, b []time.Duration, each int) {
		ratio, uncertainty := ratioOfRounds(a, b, each)
		fmt.Fprintf(out, "  %-40s %-32s %8.3f µs %7.4f ± %.4f\n", r.name, what, float64(quantile(a, 0.5))/1000, ratio, uncertainty)
	}
	line("connect / direct", r.service, r.direct, connectsInRound)
	line("connect", r.service, o.service, connectsInRound)
	line("direct", r.direct, o.direct, connectsInRound)
	for i, protocol := range established {
		line(string(protocol)+" round trip", r.established[i].trips, o.established[i].trips, roundTrips)
		line(string(protocol)+" packet", r.established[i].packets, o.established[i].packets, 1)
	}
}
