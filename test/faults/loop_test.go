package faults

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft/nfttest"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/health"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/source"
)

// syncPeriod is the default.
const syncPeriod = 30 * time.Second

// complete is a source whose objects the test writes itself.
type complete struct{}

func (complete) Complete() <-chan struct{} {
	done := make(chan struct{})
	close(done)
	return done
}

func (complete) Run(ctx context.Context, _ *cluster.Builder) error {
	<-ctx.Done()
	return nil
}

// loop is a proxy at work in a bubble, where time passes only when everything waits for it.
type loop struct {
	t       *testing.T
	m       machine
	fail    *failing
	builder *cluster.Builder
	checker *health.Checker
	options *plan.Options

	proxy.Ignore
	mu    sync.Mutex
	last  *proxy.Sync
	syncs int
	lines []string
}

// Synced keeps the last sync.
func (l *loop) Synced(s *proxy.Sync) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last, l.syncs = s, l.syncs+1
}

func (l *loop) log(_, line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, line)
}

// start starts the proxy; it ends with the test.
func start(t *testing.T, m machine) *loop {
	t.Helper()
	l := &loop{t: t, m: m, fail: newFailing(7), builder: cluster.NewBuilder("node"), options: &plan.Options{}}
	l.checker = health.NewChecker(health.Config{Families: []cluster.Family{cluster.IPv4, cluster.IPv6}, SyncPeriod: syncPeriod, Clock: clock.RealClock{}})
	quarantined := newQuarantined(t, m, l.fail)
	p := proxy.New(proxy.Config{
		Sources: []source.Source{complete{}}, Builder: l.builder, Backend: quarantined, Plan: l.options,
		Observers: []proxy.Observer{l, l.checker}, MinSyncPeriod: time.Second, SyncPeriod: syncPeriod, CheckPeriod: 250 * time.Millisecond,
	})
	ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), funcr.New(l.log, funcr.Options{})))
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	t.Cleanup(func() {
		l.fail.set(0, false)
		cancel()
		if err := errors.Join(<-ended, quarantined.Close()); err != nil {
			t.Error(err)
		}
	})
	synctest.Wait()
	return l
}

// set changes a Service and its endpoints.
func (l *loop) set(number, endpoints int) {
	l.t.Helper()
	meta := metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprint("service-", number)}
	service := &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{
		ClusterIP: fmt.Sprintf("10.96.0.%d", number), ClusterIPs: []string{fmt.Sprintf("10.96.0.%d", number), fmt.Sprintf("fd00:96::%x", number)},
		IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol},
		Ports:      []corev1.ServicePort{{Protocol: corev1.ProtocolTCP, Port: 80}},
	}}
	meta.Labels = map[string]string{discoveryv1.LabelServiceName: meta.Name}
	slice := &discoveryv1.EndpointSlice{ObjectMeta: meta, AddressType: discoveryv1.AddressTypeIPv4,
		Ports: []discoveryv1.EndpointPort{{Protocol: new(corev1.ProtocolTCP), Port: new(int32(8080)), Name: new("")}}}
	for i := range endpoints {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.244.%d.%d", number, i+1)}})
	}
	if err := l.builder.Update(func(u *cluster.Update) { u.SetService(service); u.SetEndpointSlice(slice) }); err != nil {
		l.t.Fatal(err)
	}
}

// page returns the status of a page of the health checks.
func (l *loop) page(path string) int {
	answer := httptest.NewRecorder()
	l.checker.Handler().ServeHTTP(answer, httptest.NewRequest(http.MethodGet, path, http.NoBody))
	return answer.Code
}

// right checks that the rules are those of the present objects: a proxy that starts now would write nothing.
func (l *loop) right() {
	l.t.Helper()
	synctest.Wait()
	l.mu.Lock()
	last := l.last
	l.mu.Unlock()
	if err := last.Err(); err != nil {
		l.t.Errorf("the last sync failed: %v", err)
	}
	for _, result := range last.Results {
		if len(result.Refused) > 0 {
			l.t.Errorf("quarantined: %v", result.Refused)
		}
	}
	now := plan.Compute(l.builder.Snapshot(), l.options, nil)
	for _, result := range l.m.open(l.t, nil).Sync(context.Background(), now) {
		if result.Err != nil || result.Elements+result.Rules > 0 {
			l.t.Errorf("%s: a restart writes %d elements and %d rules, error %v", result.Family, result.Elements, result.Rules, result.Err)
		}
	}
	if live, ready := l.page("/livez"), l.page("/healthz"); live != http.StatusOK || ready != http.StatusOK {
		l.t.Errorf("/livez is %d, /healthz %d", live, ready)
	}
}

// logged returns the lines so far.
func (l *loop) logged() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.lines)
}

// synced returns the number of syncs so far.
func (l *loop) synced() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.syncs
}

// eachLoop runs a test with a proxy on each machine.
func eachLoop(t *testing.T, test func(t *testing.T, l *loop)) {
	eachMachine(t, func(t *testing.T, m machine) {
		synctest.Test(t, func(t *testing.T) { test(t, start(t, m)) })
	})
}

// recovery is the time after the end of a fault in which the rules must be right.
const recovery = 5 * time.Second

// TestRandomFaults lets 30 % of all operations fail while Services change: soon after that ends the rules are right, and
// meanwhile the number of operations is bounded.
func TestRandomFaults(t *testing.T) {
	eachLoop(t, func(t *testing.T, l *loop) {
		for round := range 5 {
			l.fail.set(0.3, false, kinds()...)
			calls, _ := l.fail.counts()
			for i := range 100 { // 20 s
				l.set(i%20, 1+(i+round)%4)
				time.Sleep(200 * time.Millisecond)
			}
			if after, failed := l.fail.counts(); after-calls > 20*200 || failed == 0 {
				t.Errorf("%d operations in 20 s, %d failed", after-calls, failed)
			}
			l.fail.set(0, false)
			time.Sleep(recovery)
			l.right()
		}
	})
}

// TestLastingFaults lets all operations fail for two minutes, for one reason each: /livez fails after two sync periods, the
// attempts and log lines are few, and soon after the end the rules are right.
func TestLastingFaults(t *testing.T) {
	faults := map[string]error{
		"lock": ipt.ErrLocked, "missing": ipt.ErrMissing, "garbage": errors.New("exit status 1: \x00\xff not what was expected"),
		"full disk": unix.ENOSPC, "read-only": unix.EROFS,
	}
	for _, kind := range kinds() {
		faults[kind.Error()] = kind
	}
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			eachLoop(t, func(t *testing.T, l *loop) {
				for number := range 20 {
					l.set(number, 2)
				}
				time.Sleep(10 * time.Second)
				l.right()
				before, _ := l.fail.counts()
				lines := len(l.logged())
				l.fail.set(1, false, fault)
				for number := range 5 {
					l.set(number, 3)
				}
				time.Sleep(2 * time.Minute)
				if status := l.page("/livez"); status != http.StatusServiceUnavailable {
					t.Errorf("/livez is %d after two minutes", status)
				}
				after, _ := l.fail.counts()
				if n := after - before; n > 120*25 {
					t.Errorf("%d operations in 120 s", n)
				}
				if added := l.logged()[lines:]; len(added) > 20 {
					t.Errorf("%d lines in 120 s: %s", len(added), strings.Join(added, "\n"))
				}
				l.fail.set(0, false)
				time.Sleep(recovery)
				l.right()
			})
		})
	}
}

// TestHangingTools lets all operations hang for three minutes: /livez fails, and when they work again, one sync puts
// everything right.
func TestHangingTools(t *testing.T) {
	eachLoop(t, func(t *testing.T, l *loop) {
		for number := range 20 {
			l.set(number, 2)
		}
		time.Sleep(10 * time.Second)
		l.fail.set(0, true)
		for number := range 20 {
			l.set(number, 3)
		}
		time.Sleep(3 * time.Minute)
		if status := l.page("/livez"); status != http.StatusServiceUnavailable {
			t.Errorf("/livez is %d after three minutes", status)
		}
		before := l.synced()
		l.fail.set(0, false)
		time.Sleep(recovery)
		l.right()
		if n := l.synced() - before; n > 2 {
			t.Errorf("%d syncs", n)
		}
	})
}

// TestAlteredElement has another program alter the last of 15,000 elements, so that their number stays: it is found and
// repaired without a pause of a quarter of a second after each part of the comparison.
func TestAlteredElement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newNFT()
		l := start(t, m)
		for number := range 60 {
			l.set(number, 250)
		}
		time.Sleep(10 * time.Second)
		l.right()
		last := lastElement(t, m[0])
		altered := nf.Element{Key: last.Key, Value: slices.Repeat([]byte{1}, len(last.Value))}
		if err := errors.Join(m[0].External().DeleteElement("endpoints", last.Key), m[0].External().AddElement("endpoints", &altered)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(500 * time.Millisecond)
		synctest.Wait()
		if now := lastElement(t, m[0]); !bytes.Equal(now.Value, last.Value) {
			t.Errorf("after 500 ms the element still has the value %v", now.Value)
		}
	})
}

// lastElement returns the endpoint with the greatest key.
func lastElement(t *testing.T, f *nfttest.Fake) (last nf.Element) {
	t.Helper()
	for e, err := range f.Elements(t.Context(), "endpoints") {
		if err != nil {
			t.Fatal(err)
		}
		last = e
	}
	return last
}
