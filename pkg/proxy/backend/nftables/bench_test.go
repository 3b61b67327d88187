package nftables

import (
	"fmt"
	"testing"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/test/clusters"
)

// sizes are clusters as they are found: many small Services, and fewer large ones.
var sizes = [...]struct{ services, endpoints int }{{1000, 2}, {10000, 2}, {5000, 50}, {45000, 1}}

// eachSize runs a benchmark with a cluster of each size.
func eachSize(b *testing.B, run func(b *testing.B, c *clusters.Sized)) {
	for _, size := range sizes {
		b.Run(fmt.Sprintf("%dx%d", size.services, size.endpoints), func(b *testing.B) {
			c := clusters.NewSized(size.services, size.endpoints)
			c.Plan()
			b.ReportAllocs()
			run(b, c)
		})
	}
}

// BenchmarkRender renders a whole plan.
func BenchmarkRender(b *testing.B) {
	eachSize(b, func(b *testing.B, c *clusters.Sized) {
		for b.Loop() {
			render(cluster.IPv4, c.Last, testOptions, nil)
		}
	})
}

// BenchmarkRenderOneEndpoint renders back and forth between two plans that differ in an endpoint.
func BenchmarkRenderOneEndpoint(b *testing.B) {
	eachSize(b, func(b *testing.B, c *clusters.Sized) {
		one := c.Last
		change(c)
		other := c.Plan()
		have := render(cluster.IPv4, one, testOptions, nil)
		for b.Loop() {
			one, other = other, one
			have = render(cluster.IPv4, one, testOptions, have)
		}
	})
}

// BenchmarkDiff works out all operations that fill an empty table.
func BenchmarkDiff(b *testing.B) {
	eachSize(b, func(b *testing.B, c *clusters.Sized) {
		want := render(cluster.IPv4, c.Last, testOptions, nil)
		for b.Loop() {
			operations(diff(&ruleset{family: cluster.IPv4}, want))
		}
	})
}

// BenchmarkDiffOneEndpoint works out the operations of an endpoint's change, back and forth.
func BenchmarkDiffOneEndpoint(b *testing.B) {
	eachSize(b, func(b *testing.B, c *clusters.Sized) {
		one := render(cluster.IPv4, c.Last, testOptions, nil)
		change(c)
		other := render(cluster.IPv4, c.Plan(), testOptions, one)
		for b.Loop() {
			one, other = other, one
			if n := operations(diff(one, other)); n != 1 { // the slot is replaced
				b.Fatalf("%d operations", n)
			}
		}
	})
}

// change replaces one endpoint of a Service in the middle.
func change(c *clusters.Sized) {
	number := c.Services.Map().Len() / 2
	service, _ := c.Services.Get(clusters.NameAt(number))
	c.Set(number, -len(service.Slices[0].Endpoints))
}

func operations(p *patch) (n int) {
	for range p.ops() {
		n++
	}
	return n
}
