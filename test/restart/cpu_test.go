//go:build linux

package restart

import (
	"fmt"
	"net/http"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/seed-11a05479/kube-proxy/test/cgroup"
	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// littleCPU is the limit of CPU time in percent of a core.
const littleCPU = 1

// throttled is how long kube-proxy runs with little CPU time, and with how many more Services.
type throttled struct {
	lasts    time.Duration
	services int
}

// throttling returns the amount for CI, or what the variables THROTTLED ("10m") and SERVICES say.
func throttling(t *testing.T) (amount throttled) {
	t.Helper()
	amount = throttled{10 * time.Second, 20}
	var err error
	if text := os.Getenv("THROTTLED"); text != "" {
		if amount.lasts, err = time.ParseDuration(text); err != nil {
			t.Fatalf("THROTTLED: %v", err)
		}
	}
	if text := os.Getenv("SERVICES"); text != "" {
		if amount.services, err = strconv.Atoi(text); err != nil {
			t.Fatalf("SERVICES: %v", err)
		}
	}
	return amount
}

// TestKernelLittleCPU limits kube-proxy to 1 % of a core while Services change: no connection to a Service that does not change
// fails, /livez never fails, every change is programmed, in few syncs, and a start succeeds. Afterwards the rules are those of a
// new machine. It prints how long everything took.
func TestKernelLittleCPU(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{nftables, iptables} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			amount, group := throttling(t), cgroup.New(t, "cpu")
			r, probes := newTrial(t)
			r.program = group.Wrap(r.program)
			s := &siege{trial: r, mode: mode}
			r.many(amount.services)
			r.start(mode)
			r.serves(probes)
			r.settled(mode, amount.services)

			group.LimitCPU(littleCPU)
			traffic := streams{{probes[0].Stream(t.Context(), 100), probes[0]}}
			alive := r.watchLivez()
			syncs, changes := r.syncs(), 0
			var slowest, sum time.Duration
			for began := time.Now(); changes < 2 || time.Since(began) < amount.lasts; changes++ {
				took := r.switched(changes)
				slowest, sum = max(slowest, took), sum+took
			}
			syncs = r.syncs() - syncs
			t.Logf("%s, %d Services, %d %% of a core: %d changes in force after %v on average, at most %v, in %d syncs; %s", mode, amount.services, littleCPU,
				changes, (sum / time.Duration(changes)).Round(time.Millisecond), slowest.Round(time.Millisecond), syncs, alive())
			if syncs > 4*changes+4 {
				t.Errorf("%d syncs for %d changes", syncs, changes)
			}

			terminate(t, r.proxy)
			began := time.Now()
			r.start(mode)
			r.switched(changes)
			t.Logf("%s: a restart programmed a change after %v", mode, time.Since(began).Round(time.Millisecond))
			if group.Throttled() == 0 {
				t.Error("the limit was never reached")
			}
			group.LimitCPU(100)
			t.Logf("%s: all right %v after the limit", mode, s.likeNew(mode).Round(time.Millisecond))
			traffic.stop(t)
			if t.Failed() {
				t.Log(r.log.String())
			}
		})
	}
}

// syncs returns how many syncs of IPv4 there were.
func (r *trial) syncs() int {
	r.t.Helper()
	return number(r.t, r.get("/metrics"), `kubeproxy_sync_proxy_rules_duration_seconds_count{ip_family="IPv4"}`)
}

// switched makes one pod the second Service's only endpoint, a different one at each turn, and returns after how long it
// answers.
func (r *trial) switched(turn int) time.Duration {
	r.t.Helper()
	to := r.pods[turn%2 : turn%2+1]
	began := time.Now()
	r.write(1, to)
	r.answeredBy(to[0].host)
	return time.Since(began)
}

// answeredBy waits until only one pod answers for the second Service.
func (r *trial) answeredBy(host *netns.Host) {
	r.t.Helper()
	probe := r.probes(1, netns.IPv4)[0]
	probe.From = r.lab.Node1.Host
	for end, alike := time.Now().Add(3*time.Minute), 0; alike < 5; time.Sleep(10 * time.Millisecond) {
		answer := probe.Send()
		if answer.Endpoint == host.Name {
			alike++
		} else if alike = 0; time.Now().After(end) {
			r.t.Fatalf("the last answer is %s, want one by %s\n%s", answer, host.Name, r.log.String())
		}
	}
}

// kubeletTimeout is the timeout of a liveness probe that sets none. The manifests restart the proxy after six in a row, a
// minute.
const kubeletTimeout = time.Second

// watchLivez requests /livez every second until the returned function is called, which reports the answers. The test fails if one
// says that kube-proxy is to be restarted.
func (r *trial) watchLivez() (report func() string) {
	stop, result := make(chan struct{}), make(chan string, 1)
	var failures []string
	go func() {
		asked, late, inARow, longest, slowest := 0, 0, 0, 0, time.Duration(0)
		for {
			select {
			case <-r.t.Context().Done():
				return
			case <-stop:
				result <- fmt.Sprintf("/livez answered %d times, %d of them late, at most %d in a row, after at most %v", asked, late, longest, slowest.Round(time.Millisecond))
				return
			case <-time.After(time.Second):
			}
			began := time.Now()
			status, body := r.page("127.0.0.1:10256", "/livez")
			if asked++; status == http.StatusServiceUnavailable {
				failures = append(failures, body)
			}
			took := time.Since(began)
			if inARow++; status == http.StatusOK && took <= kubeletTimeout {
				inARow = 0
			} else {
				late++
			}
			longest, slowest = max(longest, inARow), max(slowest, took)
		}
	}()
	return func() string {
		r.t.Helper()
		close(stop)
		text := <-result
		if len(failures) > 0 {
			r.t.Errorf("/livez failed %d times, first: %s", len(failures), failures[0])
		}
		return text
	}
}
