//go:build linux

package main

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/seed-11a05479/kube-proxy/test/bench/synthetic"
	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// TestKernelProber measures changes whose times are known.
func TestKernelProber(t *testing.T) {
	lab := netns.Start(t, netns.Options{})
	pod := lab.Node1.Pods[0]
	to := netip.AddrPortFrom(pod.IPv4, 8080)
	asker := &prober{from: lab.Node1.Pods[1]}
	const after = 150 * time.Millisecond
	var server *netns.Server
	served := make(chan struct{})
	took, err := asker.untilAnswered(to, time.Now().Add(time.Minute), func() (time.Time, func(netip.Addr) bool) {
		start := time.Now()
		go func() {
			time.Sleep(after)
			defer close(served)
			var err error
			if server, err = pod.Serve(netns.TCP, 8080); err != nil {
				t.Error(err)
			}
		}()
		return start, func(by netip.Addr) bool { return by == pod.IPv4 }
	})
	if err != nil {
		t.Fatal(err)
	}
	if took < after {
		t.Errorf("answered %v after the start, and served not before %v", took, after)
	}
	<-served
	_, err = asker.untilAnswered(to, time.Now().Add(100*time.Millisecond), func() (time.Time, func(netip.Addr) bool) {
		return time.Now(), func(by netip.Addr) bool { return by != pod.IPv4 }
	})
	if err == nil {
		t.Error("an answer by somebody else was taken for the wanted one")
	}
	took, err = asker.untilSilent(to, time.Now().Add(time.Minute), func() time.Time {
		start := time.Now()
		go func() {
			time.Sleep(after)
			// To close the server would leave those unanswered, too, whom it has heard and not answered yet.
			if err := pod.Command("nft", "table ip test { chain input { type filter hook input priority 0; tcp flags syn drop; }; }").Run(); err != nil {
				t.Error(err)
			}
		}()
		return start
	})
	if err != nil {
		t.Fatal(err)
	}
	if took < after {
		t.Errorf("silent %v after the start, and served until %v at least", took, after)
	}
	if err := errors.Join(pod.Command("nft", "delete table ip test").Run(), server.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := asker.connects(1, func(int) netip.AddrPort { return to }); err == nil {
		t.Error("a port that nobody serves was connected to")
	}
}

// TestKernelBench takes all figures of a small cluster once, and finds them plausible: it is about the harness, and
// fixes no times.
func TestKernelBench(t *testing.T) {
	netns.Require(t, "nft")
	small := plan{changes: 3, rates: []int{50}, churn: time.Second, defaults: 1000, until: time.Now().Add(5 * time.Minute)}
	run, err := small.measure(build(t), "nftables", size(t, "20x3"), t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range run.Figures {
		t.Logf("%s: %.2f %s", f.Name, f.Value, f.Unit)
	}
	for _, name := range []string{
		"cold start", "cold start, CPU", "memory after cold start", "peak memory, cold start", "API server sent",
		"endpoint's change, p50", "endpoint's change, CPU each", "new service, p50", "deleted service, p50", "connect, p50",
		"connect directly, p50", "connect p50, compared with direct", "connect p50, a single dnat rule, compared with direct",
		"bare write of as many elements", "bare read of the same objects", "cold start, compared with bare reading and writing",
		"cold start, CPU of API server and questions", "churn of 50/s, behind, p50", "churn of 50/s, changes reached", "restart, until it rests",
		"restart, connections made", "restart with one change", "endpoint's change, default settings, p50",
	} {
		if v, ok := run.value(name); !ok || v <= 0 {
			t.Errorf("%s is %v, %v", name, v, ok)
		}
	}
	for _, name := range []string{"restart, connections lost", "restart, nf_tables transactions"} {
		if v, ok := run.value(name); !ok || v != 0 {
			t.Errorf("%s is %v, %v, want 0", name, v, ok)
		}
	}
}

// TestKernelTooSlow gives a proxy that never serves a moment, and is told what was left out for it.
func TestKernelTooSlow(t *testing.T) {
	netns.Require(t, "nft")
	program := filepath.Join(t.TempDir(), "slow")
	if err := os.WriteFile(program, []byte("#!/bin/sh\nexec sleep 1000\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	hasty := plan{changes: 3, rates: []int{50}, churn: time.Second, defaults: 1000, until: time.Now().Add(10 * time.Second)}
	run, err := hasty.measure(program, "iptables", size(t, "20x3"), t.Logf)
	notes := strings.Join(run.Notes, "; ")
	if err != nil || !strings.Contains(notes, "cold start: did not end in time") || !strings.HasSuffix(notes, "default settings: left out, the time was over") {
		t.Errorf("%v, %q", err, run.Notes)
	}
	run, err = hasty.measure(program, "iptables", size(t, "20x3"), t.Logf)
	if err != nil || len(run.Figures) > 0 || len(run.Notes) != 1 {
		t.Errorf("after the time was over: %v, %+v", err, run)
	}
}

// TestKernelDeadProxy tells of a proxy that ends, with what it said.
func TestKernelDeadProxy(t *testing.T) {
	netns.Require(t, "nft")
	w, err := newWorld(size(t, "20x1"), synthetic.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := w.close(); err != nil {
			t.Error(err)
		}
	}()
	p, err := w.start("/bin/sh", "/nowhere") // which knows no --config
	if err != nil {
		t.Fatal(err)
	}
	<-p.ended
	if err := p.alive(); err == nil || p.log.end() == "" {
		t.Errorf("alive says %v, and the journal has %q", err, p.log.end())
	}
	if err := p.stop(); err == nil {
		t.Error("to stop what has ended is no error")
	}
}
