//go:build linux

package netns

import (
	"net/netip"
	"testing"
)

func TestDirect(t *testing.T) {
	for _, network := range []PodNetwork{Bridged, Routed} {
		lab := Start(t, Options{PodNetwork: network})
		from := lab.Node1.Pods[0]
		to := lab.Node2.Pods[1]
		for _, protocol := range Protocols() {
			if _, err := to.Serve(protocol, 8080); err != nil {
				t.Fatal(err)
			}
			for _, family := range Families() {
				answer := Probe{From: from, To: netip.AddrPortFrom(to.Addr(family), 8080), Protocol: protocol}.Send()
				t.Log(protocol, family, answer)
				answer = Probe{From: from, To: netip.AddrPortFrom(to.Addr(family), 8081), Protocol: protocol}.Send()
				t.Log(protocol, family, answer)
				answer = Probe{From: lab.Client, To: netip.AddrPortFrom(to.Addr(family), 8080), Protocol: protocol}.Send()
				t.Log(protocol, family, answer)
				t.Log(Probe{From: from, To: netip.AddrPortFrom(to.Addr(family), 8080), Protocol: protocol}.Spread(1000))
			}
		}
	}
}
