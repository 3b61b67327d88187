//go:build linux

package app

import (
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// earlyIPs are the addresses of the Service that clients call too early: a cluster IP, a load balancer IP and an external
// IP of each family.
var earlyIPs = map[netns.Family][3]string{
	netns.IPv4: {"10.96.0.20", "192.0.0.20", "192.0.0.21"},
	netns.IPv6: {"fd00:10:96::20", "fd00:192::20", "fd00:192::21"},
}

// TestKernelEarlyClients checks that a TCP client that sends its first SYN before its Service is served gets an answer to one of
// the retransmissions. A SYN that no rule translates leaves a conntrack entry for two minutes, which would also apply to these.
func TestKernelEarlyClients(t *testing.T) {
	t.Parallel()
	for mode, open := range opens(t) {
		t.Run(string(mode), func(t *testing.T) {
			w := newUDPWorld(t, open)
			pod, local, elsewhere := w.lab.Node1.Pods[1], w.lab.Node1.Pods[0], w.lab.Node2.Pods[0]
			early := func(name string, before func(*udpWorld), callers ...*netns.Host) {
				t.Run(name, func(t *testing.T) {
					w := *w
					w.T = t
					before(&w)
					w.unanswering(callers)
					w.callEarly(callers, local)
					w.unserve()
				})
			}
			early("no Service", func(*udpWorld) {}, w.lab.Node1.Host, pod, w.lab.Client)
			early("dropped where no endpoint is local", func(w *udpWorld) { w.serveEarly(elsewhere) }, w.lab.Client)
			early("in a ServiceCIDR", func(w *udpWorld) {
				w.update(func(u *cluster.Update) {
					u.SetServiceCIDR(&networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: "kubernetes"},
						Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.96.0.0/16", "fd00:10:96::/112"}}})
				})
			}, pod)
			early("masqueraded by the pod network", func(w *udpWorld) {
				const rules = `table ip cni { chain c { type nat hook postrouting priority 101; ip daddr 192.0.0.0/24 masquerade; }; }
					table ip6 cni { chain c { type nat hook postrouting priority 101; ip6 daddr fd00:192::/64 masquerade; }; }`
				nft := w.lab.Node1.Command("nft", "-f", "-")
				nft.Stdin = strings.NewReader(rules)
				if out, err := nft.CombinedOutput(); err != nil {
					w.Fatalf("nft: %v\n%s", err, out)
				}
			}, pod)
		})
	}
}

// serveEarly makes the Service default/dns with earlyIPs, and with a pod as its endpoint that external clients reach only
// where it is local.
func (w *udpWorld) serveEarly(endpoint *netns.Host) {
	w.Helper()
	w.update(func(u *cluster.Update) {
		s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "dns"}}
		s.Spec.Type, s.Spec.ExternalTrafficPolicy = corev1.ServiceTypeLoadBalancer, corev1.ServiceExternalTrafficPolicyLocal
		s.Spec.Ports = []corev1.ServicePort{{Name: "tcp", Protocol: corev1.ProtocolTCP, Port: 53}}
		for _, family := range netns.Families() {
			ips := earlyIPs[family]
			s.Spec.ClusterIPs = append(s.Spec.ClusterIPs, ips[0])
			s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: ips[1]})
			s.Spec.ExternalIPs = append(s.Spec.ExternalIPs, ips[2])
			u.SetEndpointSlice(w.endpointSlice(family, []*netns.Host{endpoint}))
		}
		s.Spec.ClusterIP = s.Spec.ClusterIPs[0]
		u.SetService(s)
	})
}

// callEarly opens connections from each host to each of earlyIPs that external clients may use, and from pods to cluster
// IPs too; when all have sent a SYN, it makes the pod serve, and wants it to answer every connection.
func (w *udpWorld) callEarly(callers []*netns.Host, endpoint *netns.Host) {
	w.Helper()
	var calls sync.WaitGroup
	defer calls.Wait()
	for _, from := range callers {
		begun := 0
		for _, family := range netns.Families() {
			for i, ip := range earlyIPs[family] {
				if from == w.lab.Client && i == 0 {
					continue
				}
				begun++
				probe := netns.Probe{From: from, To: netip.AddrPortFrom(netip.MustParseAddr(ip), 53), Timeout: patience}
				calls.Go(func() {
					if answer := probe.Send(); answer.Verdict != netns.Answered || answer.Endpoint != endpoint.Name {
						w.Errorf("%s: %s, want %s", probe, answer, endpoint.Name)
					}
				})
			}
		}
		w.wait("a SYN from each client of "+from.Name, func() bool { return w.opening(from) == begun })
	}
	w.serveEarly(endpoint)
}

// unanswering waits until the Service of the previous test is gone, or does not serve the callers any more.
func (w *udpWorld) unanswering(callers []*netns.Host) {
	w.Helper()
	for _, from := range callers {
		for _, family := range netns.Families() {
			probe := netns.Probe{From: from, To: netip.AddrPortFrom(netip.MustParseAddr(earlyIPs[family][1]), 53)}
			w.wait(probe.String()+" to be dropped", func() bool { return probe.Send().Verdict == netns.Dropped })
		}
	}
}

// opening counts the host's TCP sockets that wait for the answer to a SYN.
func (w *udpWorld) opening(host *netns.Host) (count int) {
	w.Helper()
	out, err := host.Command("cat", "/proc/net/tcp", "/proc/net/tcp6").Output()
	if err != nil {
		w.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		const synSent = "02" // TCP_SYN_SENT
		if fields := strings.Fields(line); len(fields) > 3 && fields[3] == synSent {
			count++
		}
	}
	return count
}

// wait waits for a condition.
func (w *udpWorld) wait(what string, holds func() bool) {
	w.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			w.Fatalf("waited %s for %s", patience, what)
		}
	}
}
