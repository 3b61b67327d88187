//go:build linux

package restart

import (
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed-11a05479/kube-proxy/test/clusters"
	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// amount is how much a test does: by default in some seconds, or for a number of interruptions in the variable RESTARTS
// until enough connections were counted.
type amount struct {
	interruptions, connections int
	stopped                    time.Duration
}

func wanted(t *testing.T) amount {
	t.Helper()
	text := os.Getenv("RESTARTS")
	if text == "" {
		return amount{interruptions: 40, connections: 10_000, stopped: 2 * time.Second}
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("RESTARTS=%s: %v", text, err)
	}
	return amount{interruptions: n, connections: 100_000, stopped: time.Minute}
}

// The Services of a siege. The extra ones come and go.
const (
	changed = 2
	steady  = 3 // those that change, and one that does not: all have endpoints all the time
	extra   = 8
)

// siege interrupts kube-proxy at random moments while Services change.
type siege struct {
	*trial
	mode        string
	writes      int
	kills, ends int
}

// change changes one Service at random.
func (s *siege) change() {
	s.writes++
	switch n := s.random.IntN(changed + extra); {
	case n < changed:
		s.write(n, s.pods[s.random.IntN(len(s.pods)):])
	case s.random.IntN(3) == 0:
		if err := os.Remove(s.file(n + 1)); err != nil && !os.IsNotExist(err) {
			s.t.Fatal(err)
		}
	default:
		s.write(n+1, s.pods[s.random.IntN(len(s.pods)+1):])
	}
}

// churn changes Services for some time.
func (s *siege) churn(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(min(20*time.Millisecond, time.Until(end))) {
		s.change()
	}
}

// upTo returns a random time.
func (s *siege) upTo(d time.Duration) time.Duration {
	return time.Duration(s.random.Int64N(int64(d)))
}

// interrupt ends the process, by SIGKILL or sometimes by SIGTERM just after a change, and starts it again a moment later.
func (s *siege) interrupt() {
	s.t.Helper()
	if s.random.IntN(5) == 0 {
		s.change()
		time.Sleep(s.upTo(30 * time.Millisecond))
		if err := s.proxy.Process.Signal(syscall.SIGTERM); err != nil {
			s.t.Fatal(err)
		}
		// One that does not yet handle the signal is ended by it.
		if err := s.proxy.Wait(); err != nil && err.Error() != "signal: terminated" {
			s.t.Errorf("after SIGTERM: %v", err)
		}
		s.ends++
	} else {
		if err := s.proxy.Kill(); err != nil {
			s.t.Fatal(err)
		}
		s.kills++
	}
	s.churn(s.upTo(200 * time.Millisecond))
	s.start(s.mode)
}

// pause stops the process (SIGSTOP) while Services change.
func (s *siege) pause(d time.Duration) {
	s.t.Helper()
	for _, signal := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGCONT} {
		if err := s.proxy.Process.Signal(signal); err != nil {
			s.t.Fatal(err)
		}
		if signal == syscall.SIGSTOP {
			s.churn(d)
		}
	}
}

// TestKernelRestarts ends kube-proxy at random moments while Services change, with SIGKILL and SIGTERM, also while it starts
// and writes, stops it for a while, and starts it again at random moments, in both modes and both variants of iptables. No connection to a cluster IP or
// node port may fail in either family, and in the end the rules are those that a new machine gets. No test of another kind runs beside
// it in this package, because it loads the machine.
func TestKernelRestarts(t *testing.T) {
	for _, of := range []string{nftables, iptables, legacy} {
		t.Run(of, func(t *testing.T) {
			t.Parallel()
			amount, seed := wanted(t), rand.Uint64()
			r, _ := newTrial(t)
			mode := r.prepare(of)
			s := &siege{trial: r, mode: mode}
			s.dual, s.random = true, rand.New(rand.NewPCG(seed, 0))
			var probes []netns.Probe
			for n := range steady {
				s.write(n, s.pods)
				for _, family := range netns.Families() {
					probes = append(probes, s.probes(n, family)...)
				}
			}
			s.start(mode)
			s.serves(probes)
			began, streams := time.Now(), s.stream(probes)
			for i := 0; i < amount.interruptions || streams.sent() < amount.connections; i++ {
				if i == amount.interruptions/2 {
					s.pause(amount.stopped)
				}
				s.churn(s.upTo([]time.Duration{50, 300, 600}[i%3] * time.Millisecond)) // many are ended while they start
				s.interrupt()
			}
			equal := s.likeNew(of)
			failed, total := streams.stop(t)
			terminate(t, s.proxy)
			if strings.Contains(s.log.String(), "panic:") {
				t.Error("it panicked")
			}
			if t.Failed() {
				t.Logf("seed %d\n%s", seed, s.log.String())
			}
			t.Logf("%s: %d of %d new connections failed over %d kills, %d ends by SIGTERM and a stop of %v in %v, with %d changes of Services; then the rules of a new machine within %v",
				of, failed, total, s.kills, s.ends, amount.stopped, time.Since(began).Round(time.Second), s.writes, equal.Round(time.Millisecond))
		})
	}
}

// prepare lets kube-proxy choose a variant of iptables, by a chain of the kubelet, and returns the mode.
func (r *trial) prepare(of string) (mode string) {
	r.t.Helper()
	if of == legacy {
		for _, program := range []string{"iptables-legacy", "ip6tables-legacy"} {
			if out, err := r.lab.Node1.Command(program, "--wait", "--table", "mangle", "--new-chain", "KUBE-KUBELET-CANARY").CombinedOutput(); err != nil {
				r.t.Fatalf("%v: %s", err, out)
			}
		}
	}
	mode, _, _ = strings.Cut(of, " ")
	return mode
}

// likeNew waits until the rules are those that kube-proxy writes on a new machine for the same objects, and returns how
// long that took. of is a mode, or a variant of iptables.
func (s *siege) likeNew(of string) time.Duration {
	s.t.Helper()
	began := time.Now()
	fresh := &trial{t: s.t, lab: netns.Start(s.t, netns.Options{}), program: s.program, dir: s.dir}
	fresh.start(fresh.prepare(of))
	var got, want string
	for begun := time.Now(); time.Since(begun) < time.Minute; time.Sleep(50 * time.Millisecond) {
		got, want = rulesOf(s.lab.Node1.Host, of), rulesOf(fresh.lab.Node1.Host, of)
		if got == want && strings.Contains(got, "30080") {
			terminate(s.t, fresh.proxy)
			return time.Since(began)
		}
	}
	s.t.Errorf("the rules differ from those of a new machine:\n%s", strings.Join(clusters.ChangedLines(want, got), "\n"))
	return 0
}

// transient matches what differs in rules that do the same: counters, slots of endpoints, and iptables-save's comments.
var transient = regexp.MustCompile(`counter packets \d+ bytes \d+|\[\d+:\d+\]|(?m)^#.*$|comment "[0-9a-f]{16,}[^"]*"|packets \d+ bytes \d+|expires \w+`)

// slotNumber is that of an element of a map of endpoints.
var slotNumber = regexp.MustCompile(`(\. )\d+( comment "[^"]*")?( : )`)

// rulesOf returns the rules of a mode or of a variant of iptables in both families, without what depends on earlier states,
// sorted.
func rulesOf(host *netns.Host, mode string) string {
	commands := map[string][]string{
		nftables: {"nft list table ip kube-proxy", "nft list table ip6 kube-proxy"},
		iptables: {"iptables-nft-save", "ip6tables-nft-save"},
		legacy:   {"iptables-legacy-save", "ip6tables-legacy-save"},
	}
	var all []string
	for _, command := range commands[mode] {
		words := strings.Fields(command)
		out, err := host.Command(words[0], words[1:]...).Output()
		if err != nil {
			return fmt.Sprint(command, ": ", err) // there is no table yet
		}
		for line := range strings.Lines(transient.ReplaceAllString(string(out), "")) {
			line = slotNumber.ReplaceAllString(strings.Join(strings.Fields(line), " "), "${1}slot$2$3")
			line = strings.TrimSuffix(strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(line), "elements = {")), ",")
			all = append(all, words[0]+" "+strings.TrimSpace(strings.TrimSuffix(line, "}")))
		}
	}
	slices.Sort(all)
	return strings.Join(all, "\n")
}
