package iptables

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	machine "github.com/seed-11a05479/kube-proxy/pkg/kernel/host"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend/keeper"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/test/clusters"
	"github.com/seed-11a05479/kube-proxy/test/laws"
	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// kernelBackend returns a backend in a new network namespace, and a function that moves the current goroutine there
// until the end of that part of the benchmark.
func kernelBackend(b *testing.B, variant ipt.Variant) (backend *Backend, enter func()) {
	b.Helper()
	netns.Enter(b, "iptables-"+string(variant))
	door, err := ipt.Open(context.Background(), ipt.IPv4, variant)
	if err != nil {
		b.Fatal(err)
	}
	namespace, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _, _ = door.Close(), namespace.Close() })
	return newBackend(b, settings(nil), door), func() {
		runtime.LockOSThread()
		if err := unix.Setns(int(namespace.Fd()), unix.CLONE_NEWNET); err != nil {
			panic(err)
		}
	}
}

// cpu reports the processor time of an operation, of this thread and of iptables. Unlike elapsed time it does not
// depend on the load.
func cpu(b *testing.B, operation func(n int)) {
	b.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	_, spent := machine.MeasureCPU(b.Context())
	for n := range b.N {
		operation(n)
	}
	b.ReportMetric(float64(spent().Microseconds())/1000/float64(b.N), "cpu-ms/op")
}

// BenchmarkIptables measures, at 10,000 Services with two endpoints, a cold start, a change of one endpoint, a restart
// without changes, and the detection of external changes.
func BenchmarkIptables(b *testing.B) {
	const services = 10_000
	for _, variant := range []ipt.Variant{ipt.NFT, ipt.Legacy} {
		c := clusters.NewSized(services, 2)
		c.ServiceCIDRs = []netip.Prefix{netip.MustParsePrefix("172.0.0.0/8")}
		sync := func(b *testing.B, backend *Backend) {
			if err := laws.Err(backend.Sync(context.Background(), c.Plan())); err != nil {
				b.Fatal(err)
			}
		}
		b.Run(fmt.Sprint("cold/", variant), func(b *testing.B) {
			cpu(b, func(int) {
				b.StopTimer()
				backend, _ := kernelBackend(b, variant)
				b.StartTimer()
				sync(b, backend)
			})
		})
		b.Run(fmt.Sprint("warm/", variant), func(b *testing.B) {
			backend, enter := kernelBackend(b, variant)
			sync(b, backend)
			b.Run("change", func(b *testing.B) {
				enter()
				cpu(b, func(n int) {
					c.Set(5, 2-4*(n%2))
					sync(b, backend)
				})
			})
			b.Run("look", func(b *testing.B) {
				enter()
				cpu(b, func(int) {
					if _, drift, err := backend.families[0].Reread(b.Context(), keeper.Touched{All: true}, func(func(context.Context)) {}); err != nil || drift != nil {
						b.Fatal(drift, err)
					}
				})
			})
			b.Run("check", func(b *testing.B) { // of a change, or of nothing
				enter()
				for range 2 {
					if _, err := backend.Check(b.Context()); err != nil {
						b.Fatal(err)
					}
				}
				cpu(b, func(n int) {
					b.StopTimer()
					c.Set(5, 2-4*(n%2))
					sync(b, backend)
					b.StartTimer()
					if drifts, err := backend.Check(b.Context()); err != nil || len(drifts) > 0 {
						b.Fatal(drifts, err)
					}
				})
			})
			b.Run("restart", func(b *testing.B) {
				enter()
				cpu(b, func(int) { sync(b, newBackend(b, settings(nil), backend.families[0].door)) })
			})
		})
	}
}

// BenchmarkRender measures rendering of 10,000 Services with two endpoints: all of them, and after a change of one endpoint.
func BenchmarkRender(b *testing.B) {
	c := clusters.NewSized(10_000, 2)
	r := &renderer{family: cluster.IPv4, opts: testOptions, can: capabilities{chunk: chunkNFT}}
	first := c.Plan()
	b.Run("all", func(b *testing.B) {
		b.ReportAllocs()
		for range b.N {
			r.render(first, nil)
		}
	})
	b.Run("change", func(b *testing.B) {
		b.ReportAllocs()
		last := r.render(first, nil)
		b.ResetTimer()
		for n := range b.N {
			c.Set(5, 2-4*(n%2))
			last = r.render(c.Plan(), last)
		}
	})
}

// BenchmarkDiff computes the patch that fills empty tables with 10,000 Services with two endpoints, and the one for a
// change of one endpoint.
func BenchmarkDiff(b *testing.B) {
	c := clusters.NewSized(10_000, 2)
	r := &renderer{family: cluster.IPv4, opts: testOptions, can: capabilities{chunk: chunkNFT}}
	first := r.render(c.Plan(), nil)
	c.Set(5, -2)
	one, other := &first.ruleset, &r.render(c.Plan(), first).ruleset
	b.Run("all", func(b *testing.B) {
		b.ReportAllocs()
		for range b.N {
			diff(&ruleset{}, one)
		}
	})
	b.Run("change", func(b *testing.B) {
		b.ReportAllocs()
		for range b.N {
			one, other = other, one
			if p := diff(one, other); p.written(tableNAT) == 0 {
				b.Fatal("nothing changed")
			}
		}
	})
}

// BenchmarkText makes the input of iptables-restore for 10,000 Services with two endpoints.
func BenchmarkText(b *testing.B) {
	r := &renderer{family: cluster.IPv4, opts: testOptions, can: capabilities{chunk: chunkNFT}}
	p := diff(&ruleset{}, &r.render(clusters.NewSized(10_000, 2).Plan(), nil).ruleset)
	b.ReportAllocs()
	for range b.N {
		b.SetBytes(int64(len(transaction(tableNAT, p.writes[tableNAT], nil).Text())))
	}
}
