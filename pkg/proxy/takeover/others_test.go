package takeover

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"

	"github.com/seed-11a05479/kube-proxy/pkg/logonce"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// found is a mode whose rules are there or not.
type found func() (bool, error)

func (f found) Present(context.Context, ...cluster.Family) (bool, error) { return f() }

func (found) Remove(context.Context, ...cluster.Family) error { return errors.New("no rights") }

// inForce is a sync that succeeds in the given families.
func inForce(families ...cluster.Family) *proxy.Sync {
	s := &proxy.Sync{}
	for _, family := range families {
		s.Results = append(s.Results, backend.Result{Family: family})
	}
	return s
}

// TestObserver runs a Observer in nftables mode, with one other mode, through a sequence of states.
func TestObserver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen, logged []string
		// Time in a synctest bubble orders goroutines, but not their memory.
		var mu sync.Mutex
		present, failure, pids, unreadable := true, error(nil), []int{7}, error(nil)
		set := func(to bool, err error) {
			mu.Lock()
			defer mu.Unlock()
			present, failure = to, err
		}
		w := New(Config{
			Mode: "nftables", Families: []cluster.Family{cluster.IPv4},
			Others: []Mode{{Name: "iptables", Remover: found(func() (bool, error) {
				mu.Lock()
				defer mu.Unlock()
				return present, failure
			})}},
			Seen: func(mode string, _ time.Time) {
				mu.Lock()
				defer mu.Unlock()
				seen = append(seen, mode)
			},
			Processes: func() ([]int, error) {
				mu.Lock()
				defer mu.Unlock()
				return pids, unreadable
			},
			Logger: funcr.New(func(_, args string) {
				mu.Lock()
				defer mu.Unlock()
				logged = append(logged, args)
			}, funcr.Options{}),
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		w.Synced(inForce(cluster.IPv4))
		go func() { ended <- w.Run(ctx) }()
		expect := func(when string, want []string, lines ...string) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if !slices.Equal(seen, want) || !slices.Equal(logged, lines) {
				t.Errorf("%s: seen %q, logged %q; want seen %q and logged %q", when, seen, logged, want, lines)
			}
			seen, logged = nil, nil
		}
		time.Sleep(45*time.Second + 3*period + 1) // the first is for the removal
		expect("rules that could not be removed", nil)
		set(false, nil)
		time.Sleep(period)
		expect("no rules", nil)
		set(true, errors.New("failed check"))
		time.Sleep(period)
		expect("failed check", nil)
		set(true, nil)
		time.Sleep(period)
		expect("rules that reappeared", []string{"iptables"}, logLine(`"iptables" "pids"=[7]`))
		time.Sleep(2 * period)
		expect("rules that still exist", []string{"iptables", "iptables"})
		set(false, nil)
		time.Sleep(logonce.Reminder)
		expect("no rules again", nil)
		w.Drifted(backend.Drift{What: "a deleted rule"})
		expect("a drift that is not specific to kube-proxy", nil)
		w.Drifted(backend.Drift{Rival: true})
		expect("a drift by another kube-proxy", []string{"nftables"}, logLine(`"nftables" "pids"=[7]`))
		mu.Lock()
		pids, unreadable = nil, errors.New("no /proc")
		mu.Unlock()
		set(true, nil)
		time.Sleep(period)
		expect("rules that reappeared after a reminder, and unknown processes", []string{"iptables"}, logLine(`"iptables"`))
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// logLine returns the line of the log about another proxy, with these values.
func logLine(values string) string {
	return `"level"=0 "msg"="Another kube-proxy, which takes no lock, writes rules on this node; stop one of the two" "mode"=` + values
}
