package source

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"k8s.io/klog/v2"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

var _ Source = (*Interfaces)(nil)

// machine is a fake Machine.
type machine struct {
	changed chan struct{}

	mu       sync.Mutex
	addrs    []netip.Addr
	devices  map[string]int
	failures int
	listings int
}

func (m *machine) Addrs() ([]netip.Addr, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.listings++
	if m.failures > 0 {
		m.failures--
		return nil, errors.New("listing failed")
	}
	return m.addrs, nil
}

func (m *machine) Watch(context.Context) <-chan struct{} { return m.changed }

func (m *machine) Devices() (map[string]int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.devices, nil
}

func (m *machine) WatchDevices(ctx context.Context) <-chan struct{} { return m.Watch(ctx) }

// TestDevices changes the interfaces.
func TestDevices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		m := &machine{changed: make(chan struct{}, 1)}
		s, b := NewDevices(m, false), cluster.NewBuilder("n")
		done := make(chan struct{})
		go func() { defer close(done); _ = s.Run(ctx, b) }()
		for _, devices := range []map[string]int{{"veth1": 3, "eth0": 2}, {"veth1": 9, "eth0": 2}, {}} {
			m.mu.Lock()
			m.devices = devices
			m.mu.Unlock()
			m.changed <- struct{}{}
			synctest.Wait()
			got := map[string]int{}
			for _, d := range b.Snapshot().Node.Devices {
				got[d.Name] = d.Index
			}
			if !maps.Equal(got, devices) {
				t.Errorf("the node has %v, want %v", got, devices)
			}
		}
		cancel()
		<-done
	})
}

func (m *machine) set(failures int, texts ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.failures, m.addrs = failures, nil
	for _, text := range texts {
		m.addrs = append(m.addrs, netip.MustParseAddr(text))
	}
}

func (m *machine) listed() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.listings
}

// TestInterfaces changes addresses, with notifications, without, and with failures.
func TestInterfaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var logged []string
		logger := funcr.New(func(_, line string) {
			mu.Lock()
			defer mu.Unlock()
			logged = append(logged, line)
		}, funcr.Options{})
		ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), logger))
		m := &machine{changed: make(chan struct{}, 1)}
		m.set(3, "10.0.0.1")
		s, b := NewInterfaces(m), cluster.NewBuilder("n")
		ended := make(chan error)
		go func() { ended <- s.Run(ctx, b) }()
		want := func(what string) {
			t.Helper()
			synctest.Wait()
			if got := fmt.Sprint(b.Snapshot().Node.Interfaces); got != what {
				t.Errorf("interfaces %s, want %s", got, what)
			}
		}
		want("[]")
		select {
		case <-s.Complete():
			t.Error("complete before the first successful listing")
		default:
		}
		time.Sleep(firstRetry + 2*firstRetry + 4*firstRetry)
		<-s.Complete()
		want("[10.0.0.1]")

		m.set(0, "10.0.0.1", "fd00::1")
		m.changed <- struct{}{}
		want("[10.0.0.1 fd00::1]")

		m.set(1, "10.0.0.2")
		m.changed <- struct{}{}
		want("[10.0.0.1 fd00::1]") // a failed listing keeps the addresses
		time.Sleep(firstRetry)
		want("[10.0.0.2]")

		m.set(0, "10.0.0.3") // without a notification
		time.Sleep(resyncPeriod)
		want("[10.0.0.3]")

		m.set(1000)
		mu.Lock()
		logged = nil
		mu.Unlock()
		before := m.listed()
		m.changed <- struct{}{}
		time.Sleep(time.Hour)
		if tries := m.listed() - before; tries > 75 {
			t.Errorf("%d listings in an hour of failures", tries)
		}
		mu.Lock()
		if len(logged) > 12 || len(logged) == 0 {
			t.Errorf("an hour of failures was logged in %d lines, want 1 to 12: %q", len(logged), logged)
		}
		mu.Unlock()
		want("[10.0.0.3]")
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}
