//go:build linux

package e2e

import (
	"context"
	"net/http"
	"net/netip"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// serviceLifecycle follows a Service from its first endpoint to its return after deletion.
func serviceLifecycle(w *world) {
	pod1a, pod1b, pod2a := w.lab.Node1.Pods[0], w.lab.Node1.Pods[1], w.lab.Node2.Pods[0]
	w.service("web", "10.96.0.10", "fd00:10:96::a", nodePort(30080))
	w.silent(pod1b, netns.TCP, "10.96.0.10:80")
	w.slices("web", pod1a, pod2a)
	for _, to := range []string{"10.96.0.10:80", "[fd00:10:96::a]:80"} {
		for _, protocol := range []netns.Protocol{netns.TCP, netns.UDP} {
			w.answers(pod1b, protocol, to, "pod1a", "pod2a")
			w.answers(w.lab.Client, protocol, to, "pod1a", "pod2a")
		}
	}
	w.answers(w.lab.Node1.Host, netns.TCP, "10.96.0.10:80", "pod1a", "pod2a")
	w.answers(w.lab.Client, netns.TCP, "172.18.0.11:30080", "pod1a", "pod2a")
	w.answers(w.lab.Client, netns.TCP, "[fd00:172:18::b]:30080", "pod1a", "pod2a")

	w.slices("web", pod2a, w.lab.Node2.Pods[1]) // pod1a goes, pod2b comes
	w.answers(pod1b, netns.TCP, "10.96.0.10:80", "pod2a", "pod2b")
	w.answers(pod1b, netns.UDP, "[fd00:10:96::a]:80", "pod2a", "pod2b")

	ctx := context.Background()
	w.must(w.client.CoreV1().Services("default").Delete(ctx, "web", metav1.DeleteOptions{}))
	w.silent(pod1b, netns.TCP, "10.96.0.10:80")
	w.silent(w.lab.Client, netns.TCP, "172.18.0.11:30080")
	w.service("web", "10.96.0.10", "fd00:10:96::a")
	w.answers(pod1b, netns.TCP, "10.96.0.10:80", "pod2a", "pod2b") // its slices were there all the time
}

func nodePort(number int32) func(*corev1.Service) {
	return func(s *corev1.Service) {
		s.Spec.Type = corev1.ServiceTypeNodePort
		s.Spec.Ports[0].NodePort = number
	}
}

// selectors leaves alone what is for others.
func selectors(w *world) {
	pod1a, pod1b := w.lab.Node1.Pods[0], w.lab.Node1.Pods[1]
	w.service("foreign", "10.96.0.20", "fd00:10:96::14", func(s *corev1.Service) {
		s.Labels = map[string]string{"service.kubernetes.io/service-proxy-name": "another"}
	})
	w.slices("foreign", pod1a)
	w.service("web", "10.96.0.21", "fd00:10:96::15")
	w.slices("web", pod1a)
	headless := w.headless("web", w.lab.Node2.Pods[0])
	w.answers(pod1b, netns.TCP, "10.96.0.21:80", "pod1a")
	w.silent(pod1b, netns.TCP, "10.96.0.20:80")

	// Without the label the slice counts, so it was the label that kept it out.
	delete(headless.Labels, corev1.IsHeadlessService)
	w.apply(headless)
	w.answers(pod1b, netns.TCP, "10.96.0.21:80", "pod1a", "pod2a")
}

// headless makes a slice that says it belongs to a headless Service.
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

// localPolicy keeps the client's address, and follows the policy's change.
func localPolicy(w *world) {
	w.service("web", "10.96.0.30", "fd00:10:96::1e", nodePort(30090), func(s *corev1.Service) {
		s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	})
	w.slices("web", w.lab.Node1.Pods[0], w.lab.Node2.Pods[0])
	tally := w.answers(w.lab.Client, netns.TCP, "172.18.0.11:30090", "pod1a")
	if tally.Sources[w.lab.Client.IPv4] != tally.Sent {
		w.t.Errorf("the client's address is not kept: %s", tally)
	}
	api, ctx := w.client.CoreV1().Services("default"), context.Background()
	s, err := api.Get(ctx, "web", metav1.GetOptions{})
	w.must(err)
	s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyCluster
	_, err = api.Update(ctx, s, metav1.UpdateOptions{})
	w.must(err)
	w.answers(w.lab.Client, netns.TCP, "172.18.0.11:30090", "pod1a", "pod2a")
}

// stream sends new connections to a Service all the time, from a pod and, through a node port, from outside.
func (w *world) stream() func() {
	w.t.Helper()
	w.service("web", "10.96.0.40", "fd00:10:96::28", nodePort(30100))
	w.slices("web", w.lab.Node1.Pods[0], w.lab.Node2.Pods[0])
	w.answers(w.lab.Node1.Pods[1], netns.TCP, "10.96.0.40:80", "pod1a", "pod2a")
	w.answers(w.lab.Client, netns.TCP, "172.18.0.11:30100", "pod1a", "pod2a")
	var streams []*netns.Stream
	for _, probe := range []netns.Probe{
		{From: w.lab.Node1.Pods[1], To: netip.MustParseAddrPort("10.96.0.40:80"), Protocol: netns.TCP},
		{From: w.lab.Client, To: netip.MustParseAddrPort("172.18.0.11:30100"), Protocol: netns.TCP},
	} {
		streams = append(streams, probe.Stream(context.Background(), 100))
	}
	return func() {
		w.t.Helper()
		for _, s := range streams {
			tally := s.Stop()
			w.t.Logf("%s", tally)
			if tally.Failed() > 0 || tally.Sent == 0 {
				w.t.Errorf("connections failed: %s; the first: %s", tally, tally.Failures[:min(1, len(tally.Failures))])
			}
		}
	}
}

// serverRestart takes the API server away for some seconds: nobody notices, and changes arrive afterwards.
func serverRestart(w *world) {
	end := w.stream()
	w.must(w.cluster.StopServer())
	for range 20 {
		if code, body := w.get("http://" + healthz + "/healthz"); code != http.StatusOK {
			w.t.Fatalf("healthz without an API server: %d %s", code, body)
		}
		time.Sleep(100 * time.Millisecond) // the outage, not a wait for something
	}
	w.must(w.cluster.StartServer(context.Background()))
	end()
	w.slices("web", w.lab.Node1.Pods[0], w.lab.Node2.Pods[1])
	w.answers(w.lab.Node1.Pods[1], netns.TCP, "10.96.0.40:80", "pod1a", "pod2b")
}

// proxyRestart ends the proxy, well and badly, and starts it again: rules stay in force all the time.
func proxyRestart(w *world) {
	end := w.stream()
	w.stop()
	w.start()
	w.must(w.proxy.Process.Signal(syscall.SIGKILL))
	_ = w.proxy.Wait() // killed, as it should be
	w.start()
	end()
	w.slices("web", w.lab.Node2.Pods[1])
	w.answers(w.lab.Node1.Pods[1], netns.TCP, "10.96.0.40:80", "pod2b")
}

// rights looks whether the role system:node-proxier was enough in all that went before.
func rights(w *world) {
	if refused := w.lines("forbidden"); len(refused) > 0 {
		w.t.Errorf("the role system:node-proxier does not suffice: %s", refused)
	}
}
