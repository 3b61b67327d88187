package nftables

import (
	"fmt"
	"testing"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/test/clusters"
)

// sizes are realistic clusters: many small Services, and fewer large ones.
var sizes = [...]struct{ services, endpoints int }{{1000, 2}, {10000, 2}, {5000, 50}, {45000, 1}, {10, 1000}}

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
	empty := nothing(newSchema(cluster.IPv4, 0, false))
	eachSize(b, func(b *testing.B, c *clusters.Sized) {
		for b.Loop() {
			render(c.Last, testOptions, empty)
		}
	})
}

// BenchmarkRenderOneEndpoint alternates between two plans that differ in one endpoint.
func BenchmarkRenderOneEndpoint(b *testing.B) {
	empty := nothing(newSchema(cluster.IPv4, 0, false))
	eachSize(b, func(b *testing.B, c *clusters.Sized) {
		one := c.Last
		change(c)
		other := c.Plan()
		have := render(one, testOptions, empty)
		for b.Loop() {
			one, other = other, one
			have = render(one, testOptions, have)
		}
	})
}

// BenchmarkDiff computes all operations that fill an empty table.
func BenchmarkDiff(b *testing.B) {
	empty := nothing(newSchema(cluster.IPv4, 0, false))
	eachSize(b, func(b *testing.B, c *clusters.Sized) {
		want := render(c.Last, testOptions, empty)
		for b.Loop() {
			operations(diff(&state{holds: empty}, want))
		}
	})
}

// BenchmarkEncode encodes and decodes the elements of a full table.
func BenchmarkEncode(b *testing.B) {
	schema := newSchema(cluster.IPv4, 0, false)
	eachSize(b, func(b *testing.B, c *clusters.Sized) {
		want := render(c.Last, testOptions, nothing(schema))
		var in, out buffer
		var e element
		for b.Loop() {
			var set *set
			for set, e = range schema.elements(&want.content) {
				raw := set.encode(&e, &in)
				if _, err := set.decode(&raw, &out); err != nil {
					b.Fatal(err)
				}
			}
		}
	})
}

// BenchmarkDiffOneEndpoint computes the operations for a change of one endpoint.
func BenchmarkDiffOneEndpoint(b *testing.B) {
	empty := nothing(newSchema(cluster.IPv4, 0, false))
	eachSize(b, func(b *testing.B, c *clusters.Sized) {
		one := render(c.Last, testOptions, empty)
		change(c)
		other := render(c.Plan(), testOptions, one)
		for b.Loop() {
			one, other = other, one
			if n := operations(diff(&state{holds: one}, other)); n != 1 { // the slot is replaced
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

// BenchmarkSync programs alternating plans that differ in one endpoint into a fake table.
func BenchmarkSync(b *testing.B) {
	eachSize(b, func(b *testing.B, c *clusters.Sized) {
		backend, _ := oneFake()
		one := c.Last
		change(c)
		other := c.Plan()
		for b.Loop() {
			one, other = other, one
			if err := backend.Sync(b.Context(), one)[0].Err; err != nil {
				b.Fatal(err)
			}
		}
	})
}
