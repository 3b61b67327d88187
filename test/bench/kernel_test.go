//go:build linux

package main

import (
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed-11a05479/kube-proxy/test/bench/synthetic"
	"github.com/seed-11a05479/kube-proxy/test/kubeproxy"
	"github.com/seed-11a05479/kube-proxy/test/netns"
)

func TestMain(m *testing.M) { kubeproxy.Main(m) }

// size parses a size.
func size(t *testing.T, text string) synthetic.Size {
	t.Helper()
	s, err := synthetic.ParseSize(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// shell runs a script of sh as a proxy, outside a lab, until the test ends.
func shell(t *testing.T, script string) *process {
	t.Helper()
	command := exec.Command("/bin/sh", "-c", script)
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	p := &process{command: &netns.Cmd{Cmd: command}, ended: make(chan struct{})}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-command.Process.Pid, syscall.SIGKILL) // with its children
		_ = command.Wait()
	})
	return p
}

// TestKernelProber measures changes at known times.
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
		t.Errorf("answered %v after the start; want at least %v", took, after)
	}
	<-served
	_, err = asker.untilAnswered(to, time.Now().Add(100*time.Millisecond), func() (time.Time, func(netip.Addr) bool) {
		return time.Now(), func(by netip.Addr) bool { return by != pod.IPv4 }
	})
	if err == nil {
		t.Error("an answer from another endpoint was accepted")
	}
	took, err = asker.untilSilent(to, time.Now().Add(time.Minute), func() time.Time {
		start := time.Now()
		go func() {
			time.Sleep(after)
			// Closing the server instead would also drop connections that it has accepted but not answered yet.
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
		t.Errorf("silent %v after the start; want at least %v", took, after)
	}
	if err := errors.Join(pod.Command("nft", "delete table ip test").Run(), server.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := asker.connects(1, func(int) netip.AddrPort { return to }); err == nil {
		t.Error("no error for a port without a server")
	}
}

// TestKernelBench measures a small cluster once and checks that the figures are plausible. It tests the harness and
// asserts no times.
func TestKernelBench(t *testing.T) {
	t.Parallel()
	netns.Require(t, "nft")
	small := plan{changes: 3, rates: []int{50}, churn: time.Second, pods: 20, resting: time.Second, details: 1000, until: time.Now().Add(5 * time.Minute)}
	run, err := small.measure(kubeproxy.Path(t), "nftables", size(t, "20x3"), t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range run.Figures {
		t.Logf("%s: %.2f %s", f.Name, f.Value, f.Unit)
	}
	for _, name := range []string{
		"cold start", "cold start, CPU", "memory after cold start", "peak memory, cold start", "API server sent",
		"endpoint change, p50", "endpoint change, CPU each", "new service, p50", "deleted service, p50", "connect, p50",
		"connect directly, p50", "connect p50, compared with direct", "connect p50, a single dnat rule, compared with direct",
		"bare write of as many elements", "bare read of the same objects", "cold start, compared with bare cost",
		"cold start, CPU of API server and probes", "churn of 50/s, delay, p50", "churn of 50/s, actual rate", "restart, until idle",
		"restart, connections made", "restart with one change", "endpoint change, default settings, p50",
		"restart with one change, compared with bare cost", "new service, p50, compared with bare cost",
		"endpoint change, p50, compared with bare cost", "established UDP, round trip, p50", "established UDP, packets",
		"established UDP, packets, compared with a single dnat rule", "established TCP, packets, compared with a single dnat rule",
		"established TCP, round trip p50, compared with a single dnat rule",
		"idle, others write 12 times a second, CPU", "rolling update of 20 pods, 50/s, delay, max",
		"rolling update of 20 pods, 50/s, CPU", "update of 10 Services at once, p50", "update of 10 Services at once, CPU each",
	} {
		if v, ok := run.value(name); !ok || v <= 0 {
			t.Errorf("%s is %v, %v", name, v, ok)
		}
	}
	for _, name := range []string{"idle, CPU", "idle, context switches"} { // which may be 0 in a second
		if _, ok := run.value(name); !ok {
			t.Errorf("%s is missing", name)
		}
	}
	for _, name := range []string{"restart, connections lost", "restart, nf_tables transactions"} {
		if v, ok := run.value(name); !ok || v != 0 {
			t.Errorf("%s is %v, %v, want 0", name, v, ok)
		}
	}
}

// TestKernelStarts measures one cold start and one restart of two programs, with profiles.
func TestKernelStarts(t *testing.T) {
	t.Parallel()
	netns.Require(t, "nft")
	program, profiles := kubeproxy.Path(t), t.TempDir()
	small := &mode{name: "nftables", sizes: []synthetic.Size{size(t, "20x3")}}
	o := &options{programs: []string{program, program}, modes: []*mode{small}, within: 5 * time.Minute, starts: 1, profiles: profiles}
	report := &Report{}
	if err := o.measureStarts(report); err != nil {
		t.Fatal(err)
	}
	if len(report.Runs) != 2 {
		t.Fatalf("%d runs, want 2", len(report.Runs))
	}
	for i, run := range report.Runs {
		for _, name := range []string{
			"cold start", "cold start, compared with bare cost", "cold start, until idle", "cold start, CPU", "peak memory, cold start",
			"restart with one change", "restart with one change, compared with bare cost", "restart with one change, until idle", "restart with one change, CPU", "peak memory, restart with one change",
		} {
			if v, ok := run.value(name); !ok || v <= 0 {
				t.Errorf("program %d: %s is %v, %v", i, name, v, ok)
			}
		}
	}
	written, err := filepath.Glob(filepath.Join(profiles, "nftables-20x3-*"))
	if err != nil || len(written) != 8 {
		t.Errorf("profiles: %v, %v; want two of each of four starts", written, err)
	}
	for _, name := range written {
		if info, err := os.Stat(name); err != nil || info.Size() == 0 {
			t.Errorf("%s is empty: %v", name, err)
		}
	}
}

// TestKernelStartsFail checks that the starts before a failure are in the report.
func TestKernelStartsFail(t *testing.T) {
	t.Parallel()
	netns.Require(t, "nft")
	small := &mode{name: "nftables", sizes: []synthetic.Size{size(t, "20x3")}}
	o := &options{programs: []string{kubeproxy.Path(t), "/bin/false"}, modes: []*mode{small}, within: time.Minute, starts: 2}
	report := &Report{}
	if err := o.measureStarts(report); err == nil || !strings.Contains(err.Error(), "/bin/false exited unexpectedly") {
		t.Errorf("got error %v", err)
	}
	if _, ok := report.Runs[0].value("restart with one change"); !ok || len(report.Runs[1].Figures) > 0 {
		t.Errorf("runs %+v", report.Runs)
	}
}

// TestKernelTooSlow measures a proxy that never serves, and checks the notes about skipped measurements. It has a time limit, so no other test
// of the package runs beside it.
func TestKernelTooSlow(t *testing.T) {
	netns.Require(t, "nft")
	program := filepath.Join(t.TempDir(), "slow")
	if err := os.WriteFile(program, []byte("#!/bin/sh\nexec sleep 1000\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	hasty := plan{changes: 3, rates: []int{50}, churn: time.Second, pods: 20, resting: time.Second, details: 1000, until: time.Now().Add(20 * time.Second)}
	run, err := hasty.measure(program, "iptables", size(t, "20x3"), t.Logf)
	notes := strings.Join(run.Notes, "; ")
	if err != nil || !strings.Contains(notes, "cold start: not completed in time") || !strings.HasSuffix(notes, "default settings: skipped, time limit reached") {
		t.Errorf("%v, %q", err, run.Notes)
	}
	run, err = hasty.measure(program, "iptables", size(t, "20x3"), t.Logf)
	if err != nil || len(run.Figures) > 0 || len(run.Notes) != 1 {
		t.Errorf("after the time limit: %v, %+v", err, run)
	}
}

// TestKernelExitedProxy checks that nobody waits for a proxy that has exited: that is an error, not a lack of time.
func TestKernelExitedProxy(t *testing.T) {
	t.Parallel()
	netns.Require(t, "nft")
	program := filepath.Join(t.TempDir(), "exits")
	if err := os.WriteFile(program, []byte("#!/bin/sh\necho no such rule >&2; exit 3\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	all := plan{changes: 3, rates: []int{50}, churn: time.Second, pods: 20, resting: time.Second, details: 1000, until: time.Now().Add(time.Minute)}
	run, err := all.measure(program, "iptables", size(t, "20x3"), t.Logf)
	if err == nil || !strings.Contains(run.Failed, "exited unexpectedly") || !strings.Contains(run.Failed, "no such rule") {
		t.Errorf("%v, %q, %q", err, run.Failed, run.Notes)
	}
}

// TestKernelDeadProxy checks that the exit of a proxy is reported with its log.
func TestKernelDeadProxy(t *testing.T) {
	netns.Require(t, "nft")
	w, err := newWorld(size(t, "20x1"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := w.close(); err != nil {
			t.Error(err)
		}
	}()
	p, err := w.start("/bin/sh", "/nowhere") // which does not accept --config
	if err != nil {
		t.Fatal(err)
	}
	<-p.ended
	if err := p.alive(); err == nil || p.log.end() == "" {
		t.Errorf("alive returned %v, and the log is %q", err, p.log.end())
	}
	if err := p.stop(); err == nil {
		t.Error("no error when stopping an exited process")
	}
}
