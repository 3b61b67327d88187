//go:build linux

package main

import (
	"net/netip"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/seed-11a05479/kube-proxy/test/bench/synthetic"
	"github.com/seed-11a05479/kube-proxy/test/kubeproxy"
	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// TestKernelMemory limits the memory of an endpoint in the running program, in all stages together: the live heap grows
// by at most 200 bytes for each of 100,000 additional endpoints.
func TestKernelMemory(t *testing.T) {
	netns.Require(t, "nft")
	program := kubeproxy.Path(t)
	const most, more, services = 200, 100_000, 2500
	small := liveHeap(t, program, synthetic.Size{Services: services, Endpoints: 10})
	large := liveHeap(t, program, synthetic.Size{Services: services, Endpoints: 10 + more/(services-synthetic.Targets)})
	each := float64(large-small) / float64((services-synthetic.Targets)*(more/(services-synthetic.Targets)))
	t.Logf("live heap: %d and %d bytes, %.0f for each endpoint", small, large, each)
	if each > most {
		t.Errorf("an endpoint takes %.0f bytes, want at most %d", each, most)
	}
	if each < 8 {
		t.Errorf("an endpoint takes %.0f bytes, less than its address and port: the measurement is wrong", each)
	}
}

// liveHeap runs a program until it has programmed a cluster, and returns the size of its live heap in bytes.
func liveHeap(t *testing.T, program string, size synthetic.Size) int64 {
	t.Helper()
	w, err := newWorld(size)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := w.close(); err != nil {
			t.Error(err)
		}
	}()
	config, err := w.configure("nftables", atOnce("nftables"), "enableProfiling: true")
	if err != nil {
		t.Fatal(err)
	}
	proxy, err := w.start(program, config)
	if err != nil {
		t.Fatal(err)
	}
	asker := &prober{from: w.asker, alive: proxy.alive}
	_, err = asker.untilAnswered(synthetic.VIP(w.last()), time.Now().Add(2*time.Minute), func() (time.Time, func(netip.Addr) bool) { return time.Now(), anyEndpoint })
	if err != nil {
		t.Fatal(err)
	}
	if _, err := proxy.rest(time.Now().Add(2 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	page, err := w.fetch(proxy, "heap?gc=1&debug=1")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?m)^# HeapAlloc = (\d+)$`).FindSubmatch(page)
	if found == nil {
		t.Fatalf("no HeapAlloc in the heap profile: %.200s", page)
	}
	live, err := strconv.ParseInt(string(found[1]), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return live
}
