package plan

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// TestFastPath has one Service that asks for the fast path, refuses it or says nothing, with and without the option.
func TestFastPath(t *testing.T) {
	for _, test := range []struct {
		option     FastPath
		annotation string
		on         bool
	}{
		{FastPath{}, "true", false},
		{FastPath{All: true}, "true", false},
		{FastPath{On: true}, "true", true},
		{FastPath{On: true}, "", false},
		{FastPath{On: true, All: true}, "", true},
		{FastPath{On: true, All: true}, "false", false},
	} {
		on := test.on
		w := newWorld(t)
		w.options.FastPath = test.option
		w.update(func(u *cluster.Update) {
			u.SetService(service(everywhere, func(s *corev1.Service) {
				s.Annotations = map[string]string{cluster.AnnotationFastPath: test.annotation}
				s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: "sctp", Protocol: corev1.ProtocolSCTP, Port: 99})
			}))
			u.SetEndpointSlice(slice("four", "10.1.0.1 here", "10.2.0.1"))
			u.SetDevices(map[string]int{"eth0": 2, "veth1": 7})
		})
		p := w.plan()
		for frontend, route := range p.Frontends.All() {
			if want := on && frontend.Protocol != cluster.SCTP; route.FastPath != want {
				t.Errorf("%+v: the fast path of %s is %t", test, frontend, route.FastPath)
			}
		}
		if got := len(p.Node.Devices); test.option.On != (got == 2) || !test.option.On && got > 0 {
			t.Errorf("%+v: devices %v", test, p.Node.Devices)
		}
		for source, device := range map[string]string{outside: "eth0", nodeIP: ""} {
			path := p.Explain(Packet{Source: netip.MustParseAddr(source), Interface: device, To: netip.MustParseAddrPort(clusterIP + ":80"), Protocol: cluster.TCP})
			says := slices.ContainsFunc(path.Steps, func(s Step) bool { return s.Subject == "fast path" && strings.Contains(s.Text, "after 20 packets") })
			if says != (on && device != "") {
				t.Errorf("%+v: from %s on %q: %v", test, source, device, path.Steps)
			}
		}
	}
}
