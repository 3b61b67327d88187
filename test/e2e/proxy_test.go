//go:build linux

package e2e

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// serviceLifecycle tests a Service from its first endpoint until it is created again after deletion.
func serviceLifecycle(w *world) {
	pod1a, pod1b, pod2a := w.lab.Node1.Pods[0], w.lab.Node1.Pods[1], w.lab.Node2.Pods[0]
	w.service("web", "10.96.0.10", "fd00:10:96::a", nodePort(30080))
	w.silent(pod1b, netns.TCP, "10.96.0.10:80")
	w.endpoints("web", pod1a, pod2a)
	for _, to := range []string{"10.96.0.10:80", "[fd00:10:96::a]:80"} {
		for _, protocol := range []netns.Protocol{netns.TCP, netns.UDP} {
			w.answers(pod1b, protocol, to, "pod1a", "pod2a")
			w.answers(w.lab.Client, protocol, to, "pod1a", "pod2a")
		}
	}
	w.answers(w.lab.Node1.Host, netns.TCP, "10.96.0.10:80", "pod1a", "pod2a")
	w.answers(w.lab.Client, netns.TCP, "172.18.0.11:30080", "pod1a", "pod2a")
	w.answers(w.lab.Client, netns.TCP, "[fd00:172:18::b]:30080", "pod1a", "pod2a")

	w.endpoints("web", pod2a, w.lab.Node2.Pods[1]) // pod1a is removed, pod2b added
	for _, to := range []string{"10.96.0.10:80", "[fd00:10:96::a]:80"} {
		for _, protocol := range []netns.Protocol{netns.TCP, netns.UDP} {
			w.answers(pod1b, protocol, to, "pod2a", "pod2b")
		}
	}
	w.answers(w.lab.Client, netns.TCP, "172.18.0.11:30080", "pod2a", "pod2b")

	w.remove("web")
	w.silent(pod1b, netns.TCP, "10.96.0.10:80")
	w.silent(pod1b, netns.UDP, "[fd00:10:96::a]:80")
	w.silent(w.lab.Client, netns.TCP, "172.18.0.11:30080")
	w.service("web", "10.96.0.10", "fd00:10:96::a")
	w.answers(pod1b, netns.TCP, "10.96.0.10:80", "pod2a", "pod2b") // its slices were not deleted
	w.answers(pod1b, netns.UDP, "[fd00:10:96::a]:80", "pod2a", "pod2b")
}

func nodePort(number int32) func(*corev1.Service) {
	return func(s *corev1.Service) {
		s.Spec.Type = corev1.ServiceTypeNodePort
		s.Spec.Ports[0].NodePort = number
	}
}

// udpFlow sends all requests on the same two UDP sockets. For the kernel that is one connection, which conntrack would
// keep sending to a removed endpoint.
func udpFlow(w *world) {
	w.service("dns", "10.96.0.50", "fd00:10:96::32")
	w.endpoints("dns", w.lab.Node1.Pods[0])
	var flows []*netns.Flow
	for _, to := range []string{"10.96.0.50:80", "[fd00:10:96::32]:80"} {
		probe := netns.Probe{From: w.lab.Node1.Pods[1], To: netip.MustParseAddrPort(to), Protocol: netns.UDP}
		w.answers(probe.From, netns.UDP, to, "pod1a")
		flow, answer := probe.Open()
		if flow == nil {
			w.t.Fatalf("%s: %s", probe, answer)
		}
		w.t.Cleanup(func() { flow.Close() })
		flows = append(flows, flow)
	}
	w.endpoints("dns", w.lab.Node2.Pods[0])
	for _, flow := range flows {
		w.eventually("the flow is answered by the new endpoint", func() string {
			if answer := flow.Ask(); answer.Endpoint != "pod2a" {
				return answer.String()
			}
			return ""
		})
	}
}

// selectors checks that Services for other proxies are ignored, and served when their labels change.
func selectors(w *world) {
	pod1a, pod1b := w.lab.Node1.Pods[0], w.lab.Node1.Pods[1]
	w.service("foreign", "10.96.0.20", "fd00:10:96::14", func(s *corev1.Service) {
		s.Labels = map[string]string{"service.kubernetes.io/service-proxy-name": "another"}
	})
	w.endpoints("foreign", pod1a)
	w.service("web", "10.96.0.21", "fd00:10:96::15")
	w.endpoints("web", pod1a)
	headless := w.headless("web", w.lab.Node2.Pods[0])
	w.answers(pod1b, netns.TCP, "10.96.0.21:80", "pod1a") // earlier writes have arrived too
	w.silent(pod1b, netns.TCP, "10.96.0.20:80")

	// Without the labels they are served, so the labels were the reason.
	delete(headless.Labels, corev1.IsHeadlessService)
	w.apply(headless)
	w.answers(pod1b, netns.TCP, "10.96.0.21:80", "pod1a", "pod2a")
	w.change("foreign", func(s *corev1.Service) { s.Labels = nil })
	w.answers(pod1b, netns.TCP, "10.96.0.20:80", "pod1a")
}

// headless labels a slice as that of a headless Service.
func (w *world) headless(service string, pod *netns.Host) *discoveryv1.EndpointSlice {
	w.t.Helper()
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Name: service + "-headless", Labels: map[string]string{
			discoveryv1.LabelServiceName: service, corev1.IsHeadlessService: ""}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{port("http", corev1.ProtocolTCP)},
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{pod.IPv4.String()}}},
	}
	w.apply(slice)
	return slice
}

// localPolicy checks that the client's address is kept, and that a change of the policy takes effect.
func localPolicy(w *world) {
	w.service("web", "10.96.0.30", "fd00:10:96::1e", nodePort(30090), func(s *corev1.Service) {
		s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	})
	w.endpoints("web", w.lab.Node1.Pods[0], w.lab.Node2.Pods[0])
	tally := w.answers(w.lab.Client, netns.TCP, "172.18.0.11:30090", "pod1a")
	if tally.Sources[w.lab.Client.IPv4] != tally.Sent {
		w.t.Errorf("the client's address is not kept: %s", tally)
	}
	w.change("web", func(s *corev1.Service) { s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyCluster })
	w.answers(w.lab.Client, netns.TCP, "172.18.0.11:30090", "pod1a", "pod2a")
}

// serviceCIDR adds a ServiceCIDR: while it exists, packets to its unused addresses do not leave the node. Before and
// after that they reach the gateway, which has the address.
func serviceCIDR(w *world) {
	const taken = "10.97.0.9:80"
	w.must(w.lab.Gateway.AddAddress(netip.MustParsePrefix("10.97.0.9/32")))
	server, err := w.lab.Gateway.Serve(netns.TCP, 80)
	w.must(err)
	w.t.Cleanup(func() { server.Close() })
	w.answers(w.lab.Node1.Host, netns.TCP, taken, "gateway")

	api := w.client.NetworkingV1().ServiceCIDRs()
	_, err = api.Create(w.t.Context(), &networkingv1.ServiceCIDR{
		ObjectMeta: metav1.ObjectMeta{Name: "more"}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.97.0.0/24"}},
	}, metav1.CreateOptions{})
	w.must(err)
	w.silent(w.lab.Node1.Host, netns.TCP, taken)
	w.must(api.Delete(w.t.Context(), "more", metav1.DeleteOptions{}))
	w.answers(w.lab.Node1.Host, netns.TCP, taken, "gateway")
}

// rights checks that the role system:node-proxier is sufficient for the first lists (a Service is served) and for the
// watches (its endpoints change). It also checks that missing rights would be logged.
func rights(w *world) {
	w.service("web", "10.96.0.60", "fd00:10:96::3c")
	w.endpoints("web", w.lab.Node1.Pods[0])
	w.answers(w.lab.Node1.Pods[1], netns.TCP, "10.96.0.60:80", "pod1a")
	w.endpoints("web", w.lab.Node2.Pods[0])
	w.answers(w.lab.Node1.Pods[1], netns.TCP, "10.96.0.60:80", "pod2a")
	w.stop()
	if refused := w.lines("forbidden"); len(refused) > 0 {
		w.t.Errorf("the role system:node-proxier is not sufficient: %s", refused)
	}

	w.start("nobody")
	w.eventually("a proxy without rights logs an error", func() string {
		if len(w.lines("forbidden")) > 0 {
			return ""
		}
		return "no log line contains forbidden"
	})
	w.kill()
	w.start("proxy")
	w.healthy()
	w.answers(w.lab.Node1.Pods[1], netns.TCP, "10.96.0.60:80", "pod2a")
}

// stream opens new connections to a Service continuously, from a pod in both families and, through a node port, from an
// external client. The returned function stops it and checks that no connection failed.
func (w *world) stream() (end func()) {
	w.t.Helper()
	w.service("web", "10.96.0.40", "fd00:10:96::28", nodePort(30100))
	w.endpoints("web", w.lab.Node1.Pods[0], w.lab.Node2.Pods[0])
	probes := []netns.Probe{
		{From: w.lab.Node1.Pods[1], To: netip.MustParseAddrPort("10.96.0.40:80"), Protocol: netns.TCP},
		{From: w.lab.Node1.Pods[1], To: netip.MustParseAddrPort("[fd00:10:96::28]:80"), Protocol: netns.UDP},
		{From: w.lab.Client, To: netip.MustParseAddrPort("172.18.0.11:30100"), Protocol: netns.TCP},
	}
	var streams []*netns.Stream
	for _, probe := range probes {
		w.answers(probe.From, probe.Protocol, probe.To.String(), "pod1a", "pod2a")
		streams = append(streams, probe.Stream(w.t.Context(), 70))
	}
	return func() {
		w.t.Helper()
		for i, s := range streams {
			tally := s.Stop()
			w.t.Logf("%s: %s", probes[i], tally)
			if tally.Failed() > 0 || tally.Sent == 0 {
				w.t.Errorf("%s: connections failed: %s; the first: %s", probes[i], tally, tally.Failures[:min(1, len(tally.Failures))])
			}
		}
	}
}

// serverRestart stops the API server for some seconds: traffic is not disturbed, and changes arrive afterwards.
func serverRestart(w *world) {
	end := w.stream()
	w.must(w.cluster.StopServer())
	for range 20 {
		if code, body := w.get("http://" + healthz + "/healthz"); code != http.StatusOK {
			w.t.Errorf("healthz without an API server: %d %s", code, body)
		}
		time.Sleep(100 * time.Millisecond) // the duration of the outage
	}
	w.must(w.cluster.StartServer(w.t.Context()))
	// Each kind of object is watched again. The streams continue, because the first list after an outage could lose endpoints.
	w.endpoints("web", w.lab.Node1.Pods[0], w.lab.Node2.Pods[1])
	w.answers(w.lab.Node1.Pods[1], netns.TCP, "10.96.0.40:80", "pod1a", "pod2b")
	w.service("late", "10.96.0.41", "fd00:10:96::29")
	w.endpoints("late", w.lab.Node2.Pods[0])
	w.answers(w.lab.Node1.Pods[1], netns.TCP, "10.96.0.41:80", "pod2a")
	end()
	if code, body := w.get("http://" + healthz + "/healthz"); code != http.StatusOK {
		w.t.Errorf("healthz after the API server's return: %d %s", code, body)
	}
}

// proxyRestart stops and kills the proxy and starts it again: the rules stay in effect, and changes in between are applied.
func proxyRestart(w *world) {
	pod := w.lab.Node1.Pods[1]
	w.service("gone", "10.96.0.42", "fd00:10:96::2a")
	w.endpoints("gone", w.lab.Node1.Pods[0])
	w.answers(pod, netns.TCP, "10.96.0.42:80", "pod1a")
	end := w.stream()

	w.stop()
	w.answers(pod, netns.TCP, "10.96.0.42:80", "pod1a")
	w.remove("gone")
	w.endpoints("web", w.lab.Node1.Pods[0], w.lab.Node2.Pods[1])
	w.start("proxy")
	w.silent(pod, netns.TCP, "10.96.0.42:80")
	w.answers(pod, netns.TCP, "10.96.0.40:80", "pod1a", "pod2b")

	w.kill()
	w.endpoints("web", w.lab.Node2.Pods[1])
	w.start("proxy")
	w.answers(pod, netns.TCP, "10.96.0.40:80", "pod2b")
	for range 4 {
		w.healthy()
		w.stop()
		w.start("proxy")
		w.healthy()
		w.kill()
		w.start("proxy")
	}
	w.endpoints("web", w.lab.Node2.Pods[0])
	w.answers(pod, netns.TCP, "10.96.0.40:80", "pod2a")
	end()
}

// nodeChanges changes, deletes and recreates the Node during a stream of connections to a cluster IP: none may fail, node
// ports must follow the Node's addresses, and /healthz must show what the proxy waits for.
func nodeChanges(w *world) {
	own := []string{w.lab.Node1.IPv4.String(), w.lab.Node1.IPv6.String()}
	w.service("web", "10.96.0.10", "fd00:10:96::a", nodePort(30080))
	w.endpoints("web", w.lab.Node2.Pods[0])
	streams := map[string]*netns.Stream{}
	for _, to := range []string{"10.96.0.10:80", "[fd00:10:96::a]:80"} {
		w.answers(w.lab.Node1.Pods[1], netns.TCP, to, "pod2a")
		streams[to] = netns.Probe{From: w.lab.Node1.Pods[1], To: netip.MustParseAddrPort(to), Timeout: 900 * time.Millisecond}.Stream(w.t.Context(), 50)
	}
	defer func() {
		for to, stream := range streams {
			if tally := stream.Stop(); tally.Failed() > 0 || tally.Sent == 0 {
				w.t.Errorf("connections to %s failed: %s", to, tally)
			}
		}
	}()
	w.answers(w.lab.Client, netns.TCP, own[0]+":30080", "pod2a")
	w.must(w.lab.Node1.AddAddress(netip.MustParsePrefix("192.0.2.211/32")))
	w.nodeAddresses("192.0.2.211", own[1])
	w.answers(w.lab.Client, netns.TCP, "192.0.2.211:30080", "pod2a")
	w.silent(w.lab.Client, netns.TCP, own[0]+":30080")

	w.must(w.client.CoreV1().Nodes().Delete(w.t.Context(), w.lab.Node1.Name, metav1.DeleteOptions{}))
	w.eventually("the proxy waits for its node", func() string {
		if code, body := w.get("http://" + healthz + "/healthz"); code != http.StatusServiceUnavailable || !strings.Contains(body, "the Node object") {
			return fmt.Sprintf("%d %s", code, body)
		}
		return ""
	})
	w.answers(w.lab.Client, netns.TCP, "192.0.2.211:30080", "pod2a")
	w.createNode()
	w.healthy()
	w.answers(w.lab.Client, netns.TCP, own[0]+":30080", "pod2a")
	w.silent(w.lab.Client, netns.TCP, "192.0.2.211:30080")
}
