//go:build linux

package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/seed-11a05479/kube-proxy/test/netns"
)

const (
	// rest is the time between two changes, as if a person had made them.
	rest = 150 * time.Millisecond
	// longRest is more than the least time between two syncs that change rules (minSyncPeriod, 1 s).
	longRest = 1100 * time.Millisecond
)

// cart is the question that most changes are seen by.
func cart() question {
	return question{from: "pod1b", to: at("10.96.0.63:6379", "[fd00:10:96::63]:6379")}
}

func cartMoves() edit {
	return edit{"cart.yaml", []string{"10.244.1.2", "10.244.2.3", "fd00:10:244:1::2", "fd00:10:244:2::3"}}
}

func cartLosesItsPod() edit { return edit{"cart.yaml", []string{"ready: true", "ready: false"}} }

func frontendLosesOne() edit {
	const ipv4, ipv6 = `[10.244.1.2], nodeName: node1, conditions: `, `["fd00:10:244:1::2"], nodeName: node1, conditions: `
	const ready, unready = `{ready: true}`, `{ready: false}`
	return edit{"frontend.yaml", []string{ipv4 + ready, ipv4 + unready, ipv6 + ready, ipv6 + unready}}
}

// wait waits, if the demo goes on so long.
func wait(ctx context.Context, duration time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(duration):
		return nil
	}
}

// until asks until the answer is the wanted one, and tells how long after a moment that arrived.
func (d *demo) until(ctx context.Context, since time.Time, probe netns.Probe, wanted func(netns.Answer) bool) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	_, answer, err := probe.Until(ctx, wanted)
	d.sent++ // those before it are only waiting
	return answer.Sent.Add(answer.Latency).Sub(since), err
}

func isAnswered(a netns.Answer) bool { return a.Verdict == netns.Answered }

// refusedByRules tells an ICMP error, which is the rules', from a TCP reset, which is that of a pod without a server.
func refusedByRules(a netns.Answer) bool {
	return a.Verdict == netns.Refused && a.ICMP != netns.ICMP{}
}

func answeredBy(pod string) func(netns.Answer) bool {
	return func(a netns.Answer) bool { return a.Endpoint == pod }
}

// change changes files, and prints how soon that was met.
func (d *demo) change(ctx context.Context) error {
	d.line("")
	d.line("%s From the moment a file is changed to the first connection that meets it:", d.bold("Changes."))
	d.line("")
	if err := wait(ctx, longRest); err != nil { // since the sync of the start
		return err
	}
	bystander := d.bystander(ctx)
	defer bystander.Stop()
	took, err := d.moveCart(ctx)
	if err != nil {
		return err
	}
	d.line("%s", effect("cart moves to a pod of the other node", milliseconds(took.median()), took.note()))
	if err := d.addService(ctx); err != nil {
		return err
	}
	if err := d.killPod(ctx); err != nil {
		return err
	}
	d.tellBystander(bystander.Stop(), "checkout, which nothing was done to, meanwhile")
	return nil
}

// moveCart changes the cart's only endpoint to another pod and back, some times.
func (d *demo) moveCart(ctx context.Context) (took times, err error) {
	for try := range 6 {
		if err := wait(ctx, rest); err != nil {
			return nil, err
		}
		move, pod := cartMoves(), "pod2b"
		if try%2 == 1 {
			move, pod = move.back(), "pod1a"
		}
		since, err := d.folder.edit(move)
		if err != nil {
			return nil, err
		}
		// One edit changes both families; they are looked at in turn.
		duration, err := d.until(ctx, since, cart().probe(d.lab, try/2%2), answeredBy(pod))
		if err != nil {
			return nil, err
		}
		took = append(took, duration)
	}
	return took, nil
}

// addService adds a service, and removes it to add it again.
func (d *demo) addService(ctx context.Context) error {
	const file = "wishlist.yaml"
	q := question{from: "pod1b", to: at("10.97.0.0:80", "[fd00:10:97::]:80")}
	var took times
	for try := range 6 {
		if try > 0 {
			if err := d.folder.delete(file); err != nil {
				return err
			}
		}
		if err := wait(ctx, rest); err != nil {
			return err
		}
		since, err := d.folder.write(file, manifests("wishlist", 1, "10.97", "fd00:10:97:"))
		if err != nil {
			return err
		}
		duration, err := d.until(ctx, since, q.probe(d.lab, try%2), isAnswered)
		if err != nil {
			return err
		}
		took = append(took, duration)
	}
	d.line("%s", effect("a new service, wishlist, is added", milliseconds(took.median()), took.note()))
	return nil
}

// killPod kills a pod, says so in the files of two services, and has it come back.
func (d *demo) killPod(ctx context.Context) error {
	const pod = "pod1a"
	gone := []edit{frontendLosesOne(), cartLosesItsPod()}
	if err := d.kill(pod); err != nil {
		return err
	}
	if err := wait(ctx, longRest); err != nil {
		return err
	}
	since, err := d.folder.edit(gone...)
	if err != nil {
		return err
	}
	took, err := d.until(ctx, since, cart().probe(d.lab, 0), refusedByRules)
	if err != nil {
		return err
	}
	// The families are written one after the other, and the frontend is asked in both.
	if _, err := d.until(ctx, since, cart().probe(d.lab, 1), refusedByRules); err != nil {
		return err
	}
	d.line("%s", effect("pod1a dies, and cart with it, which now refuses", milliseconds(took), ""))
	figure, complaints := d.askBereaved(pod)
	d.verdict(effect("frontend lives on in the other three", figure, "connections answered"), complaints)

	if err := d.revive(pod); err != nil {
		return err
	}
	if err := wait(ctx, longRest); err != nil {
		return err
	}
	if since, err = d.folder.edit(gone[0].back(), gone[1].back()); err != nil {
		return err
	}
	if took, err = d.until(ctx, since, cart().probe(d.lab, 0), isAnswered); err != nil {
		return err
	}
	d.line("%s", effect("pod1a comes back, and cart answers", milliseconds(took), ""))
	return nil
}

// askBereaved asks the frontend, which has lost a pod, by all its addresses, and tells how many were answered and what
// is wrong with that.
func (d *demo) askBereaved(lost string) (figure string, complaints []string) {
	sent, answered := 0, 0
	for _, q := range shop()[0].questions {
		q.want.pods = slices.DeleteFunc(slices.Clone(q.want.pods), func(pod string) bool { return pod == lost })
		for family := range netns.Families() {
			tally := d.spread(q, family)
			sent, answered = sent+tally.Sent, answered+tally.Verdicts[netns.Answered]
			complaints = append(complaints, d.judge(q, family, tally)...)
		}
	}
	return fmt.Sprintf("%d/%d", answered, sent), complaints
}

// bystander asks a service that nothing is done to, all the time.
func (d *demo) bystander(ctx context.Context) *netns.Stream {
	q := question{from: "client", to: at("192.0.2.43:443", "[2001:db8::43]:443")}
	probe := q.probe(d.lab, 0)
	probe.Timeout = 3 * time.Second
	return probe.Stream(ctx, 100)
}

// tellBystander prints how the bystander fared.
func (d *demo) tellBystander(tally netns.Tally, what string) {
	d.sent += tally.Sent
	var complaints []string
	if tally.Failed() > 0 {
		complaints = append(complaints, fmt.Sprintf("none may fail; the first that did: %v", tally.Failures[0]))
	}
	figure := fmt.Sprintf("%d/%d", tally.Verdicts[netns.Answered], tally.Sent)
	d.verdict(effect(what, figure, "connections answered"), complaints)
}
