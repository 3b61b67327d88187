package rivals

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
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
)

// TestWatch runs a Watch in nftables mode, with one other mode, through a sequence of states.
func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen, logged []string
		// Time in a synctest bubble orders goroutines, but not their memory.
		var mu sync.Mutex
		present, failure := true, error(nil)
		set := func(to bool, err error) {
			mu.Lock()
			defer mu.Unlock()
			present, failure = to, err
		}
		w := New(Config{
			Mode: "nftables",
			Others: []Mode{{Name: "iptables", Present: func(context.Context) (bool, error) {
				mu.Lock()
				defer mu.Unlock()
				return present, failure
			}}},
			Seen: func(mode string, _ time.Time) {
				mu.Lock()
				defer mu.Unlock()
				seen = append(seen, mode)
			},
			Processes: func() ([]int, error) { return []int{7}, nil },
			Logger: funcr.New(func(_, args string) {
				mu.Lock()
				defer mu.Unlock()
				logged = append(logged, args)
			}, funcr.Options{}),
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- w.Run(ctx) }()
		expect := func(when string, want []string, lines int) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if !slices.Equal(seen, want) || len(logged) != lines {
				t.Errorf("%s: seen %q, logged %q; want seen %q and %d lines", when, seen, logged, want, lines)
			}
			seen, logged = nil, nil
		}
		time.Sleep(3*period + 1)
		expect("rules from before the start", nil, 0)
		set(false, nil)
		time.Sleep(period)
		expect("no rules", nil, 0)
		set(true, errors.New("failed check"))
		time.Sleep(period)
		expect("failed check", nil, 0)
		set(true, nil)
		time.Sleep(period)
		expect("rules that reappeared", []string{"iptables"}, 1)
		time.Sleep(2 * period)
		expect("rules that still exist", []string{"iptables", "iptables"}, 0)
		set(false, nil)
		time.Sleep(logonce.Reminder)
		expect("no rules again", nil, 0)
		w.Drifted(backend.Drift{What: "a deleted rule"})
		expect("a drift that is not specific to kube-proxy", nil, 0)
		w.Drifted(backend.Drift{Rival: true})
		expect("a drift by another kube-proxy", []string{"nftables"}, 1)
		set(true, nil)
		time.Sleep(period)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		if len(logged) != 1 || logged[0] != `"level"=0 "msg"="Another kube-proxy, which takes no lock, writes rules on this node; stop one of the two" "mode"="iptables" "pids"=[7]` {
			t.Errorf("logged %q", logged)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
