//go:build linux

package main

import (
	"net/netip"
	"os"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/seed-11a05479/kube-proxy/test/bench/synthetic"
	"github.com/seed-11a05479/kube-proxy/test/cgroup"
	"github.com/seed-11a05479/kube-proxy/test/kubeproxy"
	"github.com/seed-11a05479/kube-proxy/test/netns"

	corev1 "k8s.io/api/core/v1"
)

// limited is a world whose proxy runs in a control group.
type limited struct {
	*world
	t       *testing.T
	mode    string
	group   *cgroup.Group
	program string
	process *process
	prober  *prober
	turns   int
}

func newLimited(t *testing.T, controller, mode string, size synthetic.Size) *limited {
	t.Helper()
	netns.Require(t, "nft", "iptables")
	group := cgroup.New(t, controller)
	w, err := newWorld(size)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.close(); err != nil {
			t.Error(err)
		}
	})
	return &limited{world: w, t: t, mode: mode, group: group, program: group.Wrap(kubeproxy.Path(t)), prober: &prober{from: w.asker}}
}

// begin starts the proxy in the group.
func (l *limited) begin() {
	l.t.Helper()
	config, err := l.configure(l.mode, atOnce(l.mode))
	if err != nil {
		l.t.Fatal(err)
	}
	if l.process, err = l.start(l.program, config); err != nil {
		l.t.Fatal(err)
	}
	l.prober.alive = l.process.alive
}

// answers waits until a Service is answered by an endpoint that want accepts. It returns an error if the proxy exits, or if it
// takes more than two minutes.
func (l *limited) answers(service int, want func(netip.Addr) bool) error {
	_, err := l.prober.untilAnswered(synthetic.VIP(service), time.Now().Add(2*time.Minute), func() (time.Time, func(netip.Addr) bool) { return time.Now(), want })
	return err
}

// changed replaces an endpoint, creates a Service and deletes it, and waits until each is programmed.
func (l *limited) changed() error {
	l.t.Helper()
	l.turns++
	service := l.target(l.turns)
	fresh := l.ReplaceEndpoint(service)
	if err := l.answers(service, func(by netip.Addr) bool { return by == fresh }); err != nil {
		return err
	}
	created := l.Create()
	defer l.Delete(created)
	return l.answers(created, anyEndpoint)
}

// kill ends the proxy if it has not ended, so that the next one has the group for itself.
func (l *limited) kill() {
	_ = l.process.command.Kill() // it may have ended
	<-l.process.ended
}

// served starts the proxy, waits until it serves the last Service, changes a few Services and starts it again. It returns
// an error, and leaves no process, if the proxy did not survive that.
func (l *limited) served() (err error) {
	l.t.Helper()
	defer func() {
		if err != nil {
			l.kill()
		}
	}()
	for range 2 {
		l.begin()
		if err := l.answers(l.last(), anyEndpoint); err != nil {
			return err
		}
		for range 3 {
			if err := l.changed(); err != nil {
				return err
			}
		}
		if err := l.process.stop(); err != nil {
			return err
		}
	}
	return nil
}

// cleared removes the rules. A proxy that the kernel killed for its memory was seen to hold its lock for a moment after its end, when
// --cleanup refuses.
func (l *limited) cleared() {
	l.t.Helper()
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		out, err := l.node.Command(kubeproxy.Path(l.t), "--cleanup").CombinedOutput()
		switch {
		case err == nil:
			return
		case !strings.Contains(string(out), "another kube-proxy holds") || time.Now().After(end):
			l.t.Fatalf("--cleanup: %v: %s", err, out)
		}
	}
}

// limitedSize is the size of the cluster in the variable LIMITED, or a small one.
func limitedSize(t *testing.T) synthetic.Size {
	t.Helper()
	text := os.Getenv("LIMITED")
	if text == "" {
		text = "1000x10"
	}
	return size(t, text)
}

// memorySteps is into how many steps the most memory in use without a limit is divided to find the smallest limit.
const memorySteps = 16

// TestKernelMemoryLimit limits the memory of the proxy's control group, which counts what the kernel allocates for rules too.
// It searches for the smallest limit at which a cluster is served, and then:
//
//   - Three sixteenths of the unlimited peak above it, changes and restarts are programmed, the kernel kills nothing, and
//     no connection to an unchanged Service fails.
//   - If the cluster outgrows the limit, the kernel kills the proxy, and again at the next starts. No connection fails then
//     either, because the rules stay, and with a higher limit the next start programs everything.
//
// LIMITED is the size of the cluster ("5000x50").
func TestKernelMemoryLimit(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"nftables", "iptables"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			l := newLimited(t, "memory", mode, limitedSize(t))
			if err := l.served(); err != nil {
				t.Fatal(err)
			}
			l.cleared()
			peak := l.group.Peak()
			smallest := l.smallest(peak)
			limit := smallest + peak*3/memorySteps
			t.Logf("%v: at most %.1f MB without a limit; served at %.1f MB, tested at %.1f MB", l.Size(), megabytes(peak), megabytes(smallest), megabytes(limit))
			l.group.LimitMemory(limit)
			l.keepsServing()
			l.outgrows()
		})
	}
}

// smallest returns the smallest limit at which the cluster is served twice in a row, in steps below peak.
func (l *limited) smallest(peak int64) int64 {
	l.t.Helper()
	steps := sort.Search(memorySteps-1, func(step int) bool {
		limit := peak * int64(step+1) / memorySteps
		l.group.LimitMemory(limit)
		err := l.served()
		if err == nil {
			err = l.served()
		}
		l.cleared()
		l.t.Logf("limit %.1f MB: served is %v", megabytes(limit), err == nil)
		return err == nil
	})
	return peak * int64(steps+1) / memorySteps
}

// keepsServing changes the cluster and restarts the proxy while connections are made.
func (l *limited) keepsServing() {
	l.t.Helper()
	kills, before := l.group.Kills(), l.turns
	var stream *netns.Stream
	for range 3 {
		if err := l.served(); err != nil {
			l.t.Fatal(err)
		}
		if stream == nil {
			stream = l.stream()
		}
	}
	tally := stream.Stop()
	l.t.Logf("%d changes and 6 starts: %d processes killed, %d of %d connections failed", l.turns-before, l.group.Kills()-kills, tally.Failed(), tally.Sent)
	if l.group.Kills() != kills || tally.Failed() > 0 {
		l.t.Errorf("%d processes were killed; %s", l.group.Kills()-kills, tally)
	}
}

// stream connects to a Service that does not change. The connections are made in the node.
func (l *limited) stream() *netns.Stream {
	return netns.Probe{From: l.node, To: synthetic.VIP(0), Timeout: 900 * time.Millisecond}.Stream(l.t.Context(), 100)
}

// grow creates Services until the kernel kills the proxy, or a program that it runs, and returns them.
func (l *limited) grow() (created []int) {
	l.t.Helper()
	kills := l.group.Kills()
	for end := time.Now().Add(2 * time.Minute); l.group.Kills() == kills; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			l.t.Fatalf("the kernel kills nothing with %d more Services", len(created))
		}
		for range max(1, l.Size().Services/20) {
			created = append(created, l.CreateWith(corev1.ProtocolTCP, l.Size().Endpoints))
		}
	}
	l.kill()
	return created
}

// outgrows creates Services until the kernel kills the proxy, starts it again a few times, deletes the Services, and removes
// the limit: a start reads the rules that the kernel holds, so a smaller cluster alone may not be enough in iptables mode.
func (l *limited) outgrows() {
	l.t.Helper()
	l.begin()
	if err := l.answers(l.last(), anyEndpoint); err != nil {
		l.t.Fatal(err)
	}
	stream := l.stream()
	created := l.grow()
	const starts = 3
	for range starts { // the kubelet starts it again and again
		l.begin()
		created = append(created, l.grow()...)
	}
	for _, service := range created {
		l.Delete(service)
	}
	l.begin()
	small := l.changed()
	l.kill()
	l.group.LimitMemory(0)
	if err := l.served(); err != nil {
		l.t.Errorf("without a limit: %v", err)
	}
	tally := stream.Stop()
	l.t.Logf("killed with %d more Services, also at the next %d starts; without these Services a start succeeds with the same limit: %v; %d of %d connections failed",
		len(created), starts, small == nil, tally.Failed(), tally.Sent)
	if tally.Failed() > 0 {
		l.t.Error(tally)
	}
}
