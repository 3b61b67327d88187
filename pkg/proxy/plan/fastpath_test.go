package plan

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// TestFastPath has one Service ask for the fast path, with and without the option.
func TestFastPath(t *testing.T) {
	for _, on := range []bool{true, false} {
		w := newWorld(t)
		w.options.FastPath = on
		w.update(func(u *cluster.Update) {
			u.SetService(service(everywhere, func(s *corev1.Service) {
				s.Annotations = map[string]string{cluster.AnnotationFastPath: "true"}
				s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: "sctp", Protocol: corev1.ProtocolSCTP, Port: 99})
			}))
			u.SetEndpointSlice(slice("four", "10.1.0.1 here", "10.2.0.1"))
			u.SetDevices(map[string]int{"eth0": 2, "veth1": 7})
		})
		p := w.plan()
		for frontend, route := range p.Frontends.All() {
			if want := on && frontend.Protocol != cluster.SCTP; route.FastPath != want {
				t.Errorf("option %t: the fast path of %s is %t", on, frontend, route.FastPath)
			}
		}
		if got := len(p.Node.Devices); on != (got == 2) || !on && got > 0 {
			t.Errorf("option %t: devices %v", on, p.Node.Devices)
		}
		for source, device := range map[string]string{outside: "eth0", nodeIP: ""} {
			path := p.Explain(Packet{Source: netip.MustParseAddr(source), Interface: device, To: netip.MustParseAddrPort(clusterIP + ":80"), Protocol: cluster.TCP})
			says := slices.ContainsFunc(path.Steps, func(s Step) bool { return s.Subject == "fast path" && strings.Contains(s.Text, "after 20 packets") })
			if says != (on && device != "") {
				t.Errorf("option %t: from %s on %q: %v", on, source, device, path.Steps)
			}
		}
	}
}
