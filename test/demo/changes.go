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
	// pause is the time between two changes.
	pause = 150 * time.Millisecond
	// longPause is longer than minSyncPeriod (1 s), the minimum time between two syncs that change rules.
	longPause = 1100 * time.Millisecond
)

// cart is the check that shows most changes.
func cart() check {
	return check{from: "pod1b", to: at("10.96.0.63:6379", "[fd00:10:96::63]:6379")}
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

// wait waits for duration or until the context is done.
func wait(ctx context.Context, duration time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(duration):
		return nil
	}
}

// until repeats a probe until the answer is the wanted one, and returns the time from since to that answer.
func (d *demo) until(ctx context.Context, since time.Time, probe netns.Probe, wanted func(netns.Answer) bool) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, d.answer)
	defer cancel()
	if probe.Every = d.every; d.every > 0 {
		probe.Timeout = d.timeout
	}
	_, answer, err := probe.Until(ctx, wanted)
	d.sent++ // the attempts before it are not counted
	return answer.Sent.Add(answer.Latency).Sub(since), err
}

func isAnswered(a netns.Answer) bool { return a.Verdict == netns.Answered }

// refusedByRules reports whether an answer is an ICMP error of the rules, not a TCP reset of a pod without a server.
func refusedByRules(a netns.Answer) bool {
	return a.Verdict == netns.Refused && a.ICMP != netns.ICMP{}
}

func answeredBy(pod string) func(netns.Answer) bool {
	return func(a netns.Answer) bool { return a.Endpoint == pod }
}

// change changes files and prints the time until each change takes effect.
func (d *demo) change(ctx context.Context) error {
	d.line("")
	d.line("%s Time from the change of a file to the first connection that sees the change:", d.bold("Changes."))
	d.line("")
	if err := wait(ctx, longPause); err != nil { // since the sync of the start
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
	d.reportBystander(bystander.Stop(), "meanwhile: checkout, which did not change")
	return nil
}

// moveCart moves the cart's only endpoint to another pod and back, several times.
func (d *demo) moveCart(ctx context.Context) (took times, err error) {
	for try := range 6 {
		if err := wait(ctx, pause); err != nil {
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
		// One edit changes both families; the probes alternate between them.
		duration, err := d.until(ctx, since, cart().probe(d.lab, try/2%2), answeredBy(pod))
		if err != nil {
			return nil, err
		}
		took = append(took, duration)
	}
	return took, nil
}

// addService adds a service several times, and removes it in between.
func (d *demo) addService(ctx context.Context) error {
	const file = "wishlist.yaml"
	q := check{from: "pod1b", to: at("10.97.0.0:80", "[fd00:10:97::]:80")}
	var took times
	for try := range 6 {
		if try > 0 {
			if err := d.folder.delete(file); err != nil {
				return err
			}
		}
		if err := wait(ctx, pause); err != nil {
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

// killPod kills a pod, marks it as not ready in the files of two services, and then restores it.
func (d *demo) killPod(ctx context.Context) error {
	const pod = "pod1a"
	gone := []edit{frontendLosesOne(), cartLosesItsPod()}
	if err := d.kill(pod); err != nil {
		return err
	}
	if err := wait(ctx, longPause); err != nil {
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
	// The proxy writes the families one after the other, and the next checks use both.
	if _, err := d.until(ctx, since, cart().probe(d.lab, 1), refusedByRules); err != nil {
		return err
	}
	d.line("%s", effect("pod1a, the only pod of cart, dies: cart refuses", milliseconds(took), ""))
	figure, complaints := d.checkFrontend(pod)
	d.verdict(effect("frontend, on the other three pods", figure, "connections answered"), complaints)

	if err := d.revive(pod); err != nil {
		return err
	}
	if err := wait(ctx, longPause); err != nil {
		return err
	}
	if since, err = d.folder.edit(gone[0].back(), gone[1].back()); err != nil {
		return err
	}
	if took, err = d.until(ctx, since, cart().probe(d.lab, 0), isAnswered); err != nil {
		return err
	}
	d.line("%s", effect("pod1a is back: cart answers", milliseconds(took), ""))
	return nil
}

// checkFrontend connects to all addresses of the frontend, which has lost a pod, and returns the number of answered
// connections and the errors.
func (d *demo) checkFrontend(lost string) (figure string, complaints []string) {
	sent, answered := 0, 0
	for _, q := range shop()[0].checks {
		q.want.pods = slices.DeleteFunc(slices.Clone(q.want.pods), func(pod string) bool { return pod == lost })
		for family := range netns.Families() {
			tally := d.spread(q, family)
			sent, answered = sent+tally.Sent, answered+tally.Verdicts[netns.Answered]
			complaints = append(complaints, d.judge(q, family, tally)...)
		}
	}
	return fmt.Sprintf("%d/%d", answered, sent), complaints
}

// bystander connects to an unchanged service at a steady rate.
func (d *demo) bystander(ctx context.Context) *netns.Stream {
	q := check{from: "client", to: at("192.0.2.43:443", "[2001:db8::43]:443")}
	probe := q.probe(d.lab, 0)
	probe.Timeout = d.timeout
	return probe.Stream(ctx, d.rate)
}

// reportBystander prints the result of the bystander's connections.
func (d *demo) reportBystander(tally netns.Tally, what string) {
	d.sent += tally.Sent
	var complaints []string
	if tally.Failed() > 0 {
		complaints = append(complaints, fmt.Sprintf("no connection may fail; the first failure: %v", tally.Failures[0]))
	}
	figure := fmt.Sprintf("%d/%d", tally.Verdicts[netns.Answered], tally.Sent)
	d.verdict(effect(what, figure, "connections answered"), complaints)
}
