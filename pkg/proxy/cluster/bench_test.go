package cluster

import (
	"fmt"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// objects are the Services and slices of a cluster.
type objects struct {
	services []*corev1.Service
	slices   []*discoveryv1.EndpointSlice
}

func newObjects(services, endpoints int) *objects {
	o := &objects{}
	for i := range services {
		name := fmt.Sprintf("service-%06d", i)
		var addresses []string
		for j := i * endpoints; j < (i+1)*endpoints; j++ {
			addresses = append(addresses, netip.AddrFrom4([4]byte{10, byte(j >> 16), byte(j >> 8), byte(j)}).String())
		}
		o.services = append(o.services, newService(name, netip.AddrFrom4([4]byte{172, 30, byte(i >> 8), byte(i)}).String()))
		o.slices = append(o.slices, newSlice(name+"-x7k2p", name, addresses...))
	}
	return o
}

// all passes the objects to a Builder one by one, as a source does.
func (o *objects) all(b *Builder) {
	for _, s := range o.services {
		_ = b.Update(func(u *Update) { u.SetService(s) })
	}
	for _, s := range o.slices {
		_ = b.Update(func(u *Update) { u.SetEndpointSlice(s) })
	}
}

// otherVersion returns the slice of a number, and a version of it with another endpoint.
func (o *objects) otherVersion(number int) (slice, other *discoveryv1.EndpointSlice) {
	slice = o.slices[number]
	other = slice.DeepCopy()
	other.Endpoints[0].Addresses[0] = "10.255.0.1"
	return slice, other
}

// sizes are realistic clusters: many small Services, and fewer large ones.
var sizes = [...]struct{ services, endpoints int }{{1000, 2}, {10000, 2}, {5000, 50}, {45000, 1}}

// BenchmarkCold builds a cluster from scratch.
func BenchmarkCold(b *testing.B) {
	for _, size := range sizes {
		b.Run(fmt.Sprintf("%dx%d", size.services, size.endpoints), func(b *testing.B) {
			o := newObjects(size.services, size.endpoints)
			b.ReportAllocs()
			for b.Loop() {
				builder := NewBuilder("n1")
				o.all(builder)
				if n := builder.Snapshot().Services.Len(); n != size.services {
					b.Fatalf("%d Services", n)
				}
			}
		})
	}
}

// BenchmarkManySlices reads one Service with very many slices, in the order in which an API server lists them. The time for each must
// not depend on their number: whoever may write EndpointSlices can create as many.
func BenchmarkManySlices(b *testing.B) {
	for _, count := range []int{10_000, 100_000} {
		b.Run(fmt.Sprint(count), func(b *testing.B) {
			o := newObjects(1, 1)
			o.slices = nil
			for i := range count {
				o.slices = append(o.slices, newSlice(fmt.Sprintf("slice-%06d", i), o.services[0].Name, "10.1.0.1"))
			}
			b.ReportAllocs()
			for b.Loop() {
				builder := NewBuilder("n1")
				o.all(builder)
				if n := builder.Snapshot().Services.Len(); n != 1 {
					b.Fatalf("%d Services", n)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*count), "ns/slice")
		})
	}
}

// BenchmarkOneEndpoint alternates one endpoint between two addresses, and finds the change in a new snapshot.
func BenchmarkOneEndpoint(b *testing.B) {
	for _, size := range sizes {
		b.Run(fmt.Sprintf("%dx%d", size.services, size.endpoints), func(b *testing.B) {
			o := newObjects(size.services, size.endpoints)
			builder := NewBuilder("n1")
			o.all(builder)
			slice, other := o.otherVersion(size.services / 2)
			before := builder.Snapshot()
			b.ReportAllocs()
			for b.Loop() {
				slice, other = other, slice
				_ = builder.Update(func(u *Update) { u.SetEndpointSlice(slice) })
				after, changes := builder.Snapshot(), 0
				for range Changes(before.Services, after.Services) {
					changes++
				}
				if changes != 1 {
					b.Fatalf("%d changes", changes)
				}
				before = after
			}
		})
	}
}

// BenchmarkConvert converts the objects of a cluster, without building a snapshot.
func BenchmarkConvert(b *testing.B) {
	for _, size := range sizes {
		b.Run(fmt.Sprintf("%dx%d", size.services, size.endpoints), func(b *testing.B) {
			o := newObjects(size.services, size.endpoints)
			c := &converter{nodeName: "n1"}
			b.ReportAllocs()
			for b.Loop() {
				for _, s := range o.services {
					c.service(s)
				}
				for _, s := range o.slices {
					c.slice(s)
				}
			}
		})
	}
}
