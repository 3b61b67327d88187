package nftables

import (
	"fmt"
	"testing"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// sizes are clusters as they are found: many small Services, and fewer large ones.
var sizes = [...]struct{ services, endpoints int }{{1000, 2}, {10000, 2}, {5000, 50}, {45000, 1}}

// eachSize runs a benchmark with a cluster of each size.
func eachSize(b *testing.B, run func(b *testing.B, c *sized)) {
	for _, size := range sizes {
		b.Run(fmt.Sprintf("%dx%d", size.services, size.endpoints), func(b *testing.B) {
			c := newSized(size.services, size.endpoints)
			c.plan()
			b.ReportAllocs()
			run(b, c)
		})
	}
}

// BenchmarkRender renders a whole plan.
func BenchmarkRender(b *testing.B) {
	eachSize(b, func(b *testing.B, c *sized) {
		for b.Loop() {
			render(cluster.IPv4, c.last, testOptions, nil)
		}
	})
}

// BenchmarkRenderOneEndpoint renders back and forth between two plans that differ in an endpoint.
func BenchmarkRenderOneEndpoint(b *testing.B) {
	eachSize(b, func(b *testing.B, c *sized) {
		one := c.last
		c.change()
		other := c.plan()
		have := render(cluster.IPv4, one, testOptions, nil)
		for b.Loop() {
			one, other = other, one
			have = render(cluster.IPv4, one, testOptions, have)
		}
	})
}

// BenchmarkDiff works out all operations that fill an empty table.
func BenchmarkDiff(b *testing.B) {
	eachSize(b, func(b *testing.B, c *sized) {
		want := render(cluster.IPv4, c.last, testOptions, nil)
		for b.Loop() {
			operations(diff(&ruleset{family: cluster.IPv4}, want))
		}
	})
}

// BenchmarkDiffOneEndpoint works out the operations of an endpoint's change, back and forth.
func BenchmarkDiffOneEndpoint(b *testing.B) {
	eachSize(b, func(b *testing.B, c *sized) {
		one := render(cluster.IPv4, c.last, testOptions, nil)
		c.change()
		other := render(cluster.IPv4, c.plan(), testOptions, one)
		for b.Loop() {
			one, other = other, one
			if n := operations(diff(one, other)); n != 1 { // the slot is replaced
				b.Fatalf("%d operations", n)
			}
		}
	})
}

// change replaces one endpoint of a Service in the middle.
func (c *sized) change() {
	number := c.services.Map().Len() / 2
	name := cluster.ServiceName{Namespace: "default", Name: fmt.Sprint("service-", number)}
	service, _ := c.services.Get(name)
	c.set(number, -len(service.Slices[0].Endpoints))
}

func operations(p *patch) (n int) {
	for range p.ops() {
		n++
	}
	return n
}
