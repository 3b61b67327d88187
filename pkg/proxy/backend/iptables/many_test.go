package iptables

import (
	"runtime"
	"testing"
	"time"

	machine "github.com/seed-11a05479/kube-proxy/pkg/kernel/host"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/test/clusters"
)

// TestManyOfOnePort renders a port with as many addresses and endpoints as Services may have, and changes one: the time does not grow with
// the square of their number, which would be seconds.
func TestManyOfOnePort(t *testing.T) {
	const many = 20_000
	runtime.LockOSThread() // MeasureCPU measures this thread
	defer runtime.UnlockOSThread()
	c := clusters.NewSized(1, 1)
	c.Options.ServeExternalIPs = true
	set := func(addresses, endpoints int) {
		c.Set(0, endpoints)
		s, _ := c.Services.Get(clusters.NameAt(0))
		s.External = &cluster.External{}
		for i := range addresses {
			s.External.ExternalIPs = append(s.External.ExternalIPs, clusters.AddrAt(198<<24, i))
		}
		for i := range s.Slices[0].Endpoints { // each has a chain of its own
			s.Slices[0].Endpoints[i].Conditions |= cluster.NoNodeName
		}
	}
	r := &renderer{family: cluster.IPv4, opts: testOptions, can: capabilities{chunk: chunkNFT}}
	for _, test := range [][2][2]int{{{many, 1}, {many - 1, 1}}, {{1, many}, {1, -many}}} {
		var last *rendering
		for _, n := range test {
			set(n[0], n[1])
			p := c.Plan()
			_, spent := machine.MeasureCPU(t.Context())
			last = r.render(p, last)
			if took := spent(); took > time.Second {
				t.Errorf("%d addresses and %d endpoints take %s", n[0], n[1], took)
			}
		}
	}
}
