package iptables

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt"
	"github.com/seed-11a05479/kube-proxy/test/clusters"
	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// kernelBackend is a backend in a network namespace of the benchmark's own, and a function that moves the goroutine of a
// part of the benchmark there, for its end.
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
	return New(testOptions, noSettings{}, door), func() {
		runtime.LockOSThread()
		if err := unix.Setns(int(namespace.Fd()), unix.CLONE_NEWNET); err != nil {
			panic(err)
		}
	}
}

// BenchmarkIptables measures what the design promises, at 10,000 Services of two endpoints: a cold start, a change of one
// endpoint, a restart that finds all as it should be, and looking for others' changes.
func BenchmarkIptables(b *testing.B) {
	const services = 10_000
	for _, variant := range []ipt.Variant{ipt.NFT, ipt.Legacy} {
		c := clusters.NewSized(services, 2)
		c.ServiceCIDRs = []netip.Prefix{netip.MustParsePrefix("172.0.0.0/8")}
		sync := func(b *testing.B, backend *Backend) {
			if err := joined(backend.Sync(context.Background(), c.Plan())); err != nil {
				b.Fatal(err)
			}
		}
		b.Run(fmt.Sprint("cold/", variant), func(b *testing.B) {
			for range b.N {
				b.StopTimer()
				backend, _ := kernelBackend(b, variant)
				b.StartTimer()
				sync(b, backend)
			}
		})
		b.Run(fmt.Sprint("warm/", variant), func(b *testing.B) {
			backend, enter := kernelBackend(b, variant)
			sync(b, backend)
			b.Run("change", func(b *testing.B) {
				enter()
				for n := range b.N {
					c.Set(5, 2-4*(n%2))
					sync(b, backend)
				}
			})
			b.Run("look", func(b *testing.B) {
				for range b.N {
					f := backend.families[0]
					f.watch.suspect = variant == ipt.NFT // which would look at nothing otherwise
					if drift, err := f.audit(context.Background()); err != nil || drift != nil {
						b.Fatal(drift, err)
					}
				}
			})
			b.Run("hear", func(b *testing.B) {
				for range b.N {
					backend.families[0].hear()
				}
			})
			b.Run("restart", func(b *testing.B) {
				enter()
				for range b.N {
					sync(b, New(testOptions, noSettings{}, backend.families[0].door))
				}
			})
		})
	}
}
