//go:build linux

package main

import (
	"net/netip"
	"testing"

	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// TestKernelJudge connects to a pod directly, without a proxy: judge must accept the correct expectation, and reject each
// one that differs in a single property.
func TestKernelJudge(t *testing.T) {
	lab := netns.Start(t, netns.Options{})
	asker, pod := lab.Node1.Pods[0], lab.Node1.Pods[1]
	if _, err := pod.Serve(netns.TCP, 8080); err != nil {
		t.Fatal(err)
	}
	d := &demo{lab: lab, names: map[netip.Addr]string{asker.IPv4: "pod1a", asker.IPv6: "pod1a"}}
	to := [2]netip.AddrPort{netip.AddrPortFrom(pod.IPv4, 8080), netip.AddrPortFrom(pod.IPv6, 8080)}
	closed := [2]netip.AddrPort{netip.AddrPortFrom(pod.IPv4, 81), netip.AddrPortFrom(pod.IPv6, 81)}
	for _, c := range []struct {
		name  string
		to    [2]netip.AddrPort
		want  want
		right bool
	}{
		{"all is well", to, answered(8080, "pod1a", "pod1b"), true},
		{"another pod", to, answered(8080, "pod1a", "pod2a"), false},
		{"two pods", to, answered(8080, "pod1a", "pod1b", "pod2a"), false},
		{"another port", to, answered(8443, "pod1a", "pod1b"), false},
		{"another source", to, answered(8080, "node1", "pod1b"), false},
		{"answered in place of refused", to, refused(), false},
		{"answered in place of dropped", to, dropped(), false},
		{"a closed port in place of rules", closed, refused(), false},
		{"refused in place of answered", closed, answered(8080, "pod1a", "pod1b"), false},
	} {
		q := check{from: asker.Name, to: c.to, want: c.want}
		for family, name := range netns.Families() {
			complaints := d.judge(q, family, q.probe(lab, family).Spread(100))
			if (len(complaints) == 0) != c.right {
				t.Errorf("%s, %v: complaints %q", c.name, name, complaints)
			}
		}
	}
}
