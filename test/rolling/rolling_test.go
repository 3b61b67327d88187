//go:build linux

package rolling

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/seed-11a05479/kube-proxy/test/kubeproxy"
	"github.com/seed-11a05479/kube-proxy/test/netns"
)

func TestMain(m *testing.M) { kubeproxy.Main(m) }

// program is a proxy.
type program struct{ name, path string }

// amount is how much is replaced: replicas pods by as many others, one after every pause, in these ways.
type amount struct {
	replicas int
	pause    time.Duration
	endings  []ending
}

// ending is how a pod ends. It serves for preStop, then it is not ready and still serves for lameDuck (as CoreDNS does); then its programs stop.
type ending struct {
	name              string
	preStop, lameDuck time.Duration
	// lossless are the kinds of connections of which none may fail.
	lossless func(kind) bool
}

// endings are the ways. A client of UDP does not learn that the pod stops: what it sends until the pod is reported as not serving is lost, unless
// that is reported first. Without any delay also what arrives until the rules are changed is lost: no proxy can win that race always.
func endings() []ending {
	return []ending{
		{"preStop and lame duck", 2 * time.Second, 2 * time.Second, func(kind) bool { return true }},
		{"preStop", 3 * time.Second, 0, func(k kind) bool { return k.protocol == netns.TCP || !k.kept }},
		{"at once", handlesSIGTERM, 0, func(kind) bool { return false }},
	}
}

// amountOf returns the amount of make rolling, or that of CI.
func amountOf() amount {
	if os.Getenv("ROLLING") == "whole" {
		return amount{50, 200 * time.Millisecond, endings()}
	}
	return amount{10, 100 * time.Millisecond, endings()[:1]}
}

// handlesSIGTERM is how long a program takes to stop, removedAfter how long its pod is reported after that.
const (
	handlesSIGTERM = 50 * time.Millisecond
	removedAfter   = 300 * time.Millisecond
)

// TestKernelRolling replaces the pods of two Services under load. Nothing may fail that an ending allows to be lossless; the rest is only
// counted, also of Kubernetes' own kube-proxy if PEER names it.
func TestKernelRolling(t *testing.T) {
	a := amountOf()
	w := newWorld(t, a.replicas, netns.TCP, netns.UDP)
	programs := []program{{"this", kubeproxy.Path(t)}}
	if path := os.Getenv("PEER"); path != "" {
		programs = append(programs, program{"Kubernetes'", path})
	}
	rows := []string{"proxy\tmode\ta pod ends\tpolicy\tnew TCP\tkept TCP\tnew UDP\tkept UDP"}
	defer func() {
		var table strings.Builder
		out := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
		fmt.Fprintln(out, strings.Join(rows, "\n"))
		out.Flush()
		t.Logf("%d pods replaced, one each %s: requests that failed\n%s", a.replicas, a.pause, table.String())
	}()
	for _, mode := range []string{"nftables", "iptables"} {
		for _, p := range programs {
			for _, e := range a.endings {
				t.Run(mode+"/"+p.name+"/"+e.name, func(t *testing.T) {
					counts, first := w.roll(t, p.path, mode, a, e)
					for _, s := range services {
						row := []string{p.name, mode, e.name, s.name}
						for _, protocol := range w.protocols {
							for _, kept := range []bool{false, true} {
								var sum count
								for _, family := range netns.Families() {
									k := kind{protocol, family, kept, s.name}
									sum = sum.plus(counts[k])
									if counts[k].failed > 0 {
										t.Logf("%+v: %s failed; the first: %s", k, counts[k], first[k])
									}
									if counts[k].failed > 0 && p.name == "this" && e.lossless(k) {
										t.Errorf("%+v: %s failed, want none", k, counts[k])
									}
								}
								row = append(row, sum.String())
							}
						}
						rows = append(rows, strings.Join(row, "\t"))
					}
				})
			}
		}
	}
}

// roll runs a program, starts half of the pods, and replaces them by the other half under load.
func (w *world) roll(t *testing.T, program, mode string, a amount, e ending) (map[kind]count, map[kind]string) {
	outer := w.T
	w.T = t
	defer func() { w.T = outer }()
	old, fresh := w.halves()
	for _, p := range old {
		if err := w.starts(p); err != nil {
			t.Fatal(err)
		}
	}
	probes := w.probes()
	for i := range probes {
		probes[i].Timeout = 900 * time.Millisecond // an answer that is late because the machine is busy must not count as lost
	}
	stop := w.run(program, mode, probes)
	defer stop()
	l := start(t.Context(), probes, rate{perSecond: 200, keptEach: 2, keptPause: 100 * time.Millisecond})
	w.after(time.Second)
	var leaving sync.WaitGroup
	for i := range old {
		if err := w.starts(fresh[i]); err != nil {
			t.Error(err)
		}
		w.after(a.pause)
		leaving.Go(func() {
			if err := w.leaves(old[i], e); err != nil {
				t.Error(err)
			}
		})
	}
	leaving.Wait()
	w.after(time.Second)
	counts, first := l.stop()
	for _, p := range fresh { // for the next program
		w.becomes(p, absent)
		for _, server := range p.servers {
			if err := server.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	return counts, first
}

// halves divides the pods, so that each node has half of each half.
func (w *world) halves() (old, fresh []*pod) {
	for i, p := range w.pods {
		if i%2 == 0 {
			old = append(old, p)
		} else {
			fresh = append(fresh, p)
		}
	}
	return old, fresh
}

// leaves takes a pod through the end of its life.
func (w *world) leaves(p *pod, e ending) error {
	w.becomes(p, terminatingServing)
	w.after(e.preStop)
	if e.lameDuck > 0 {
		w.becomes(p, terminating)
		w.after(e.lameDuck)
	}
	err := w.stops(p)
	w.becomes(p, terminating)
	w.after(removedAfter)
	w.becomes(p, absent)
	return err
}
