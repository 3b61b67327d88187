//go:build linux

package rolling

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed-11a05479/kube-proxy/test/kubeproxy"
	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// The port of a pod, and of a Service on its cluster IPs.
const endpointPort, servicePort = 8080, 80

// services are the two Services, by their traffic policy.
var services = []struct {
	name       string
	clusterIPs []string
	nodePort   int32
	local      bool
}{
	{"cluster", []string{"10.96.0.10", "fd00:10:96::10"}, 30080, false},
	{"local", []string{"10.96.0.11", "fd00:10:96::11"}, 30081, true},
}

// phase is one of an endpoint's life.
type phase int

const (
	absent phase = iota
	ready
	terminatingServing
	terminating
)

// conditions returns those of the phase in an EndpointSlice.
func (p phase) conditions() discoveryv1.EndpointConditions {
	return discoveryv1.EndpointConditions{Ready: new(p == ready), Serving: new(p == ready || p == terminatingServing), Terminating: new(p > ready)}
}

// pod is an endpoint of both Services.
type pod struct {
	*netns.Host
	node    string
	phase   phase
	servers []*netns.Server
}

// world is a lab with an API server in node1, where a proxy runs, and pods on both nodes of which some are endpoints.
type world struct {
	*testing.T
	lab *netns.Lab
	api *kubeproxy.API
	dir string
	// protocols are those of the Services.
	protocols []netns.Protocol
	env       []string // of the proxies; nil means that of the test
	log       bytes.Buffer

	mu   sync.Mutex
	pods []*pod
}

// newWorld builds a world with this many pods on each node, and one on node1 that is no endpoint and connects.
func newWorld(t *testing.T, podsPerNode int, protocols ...netns.Protocol) *world {
	lab := netns.Start(t, netns.Options{PodsPerNode: podsPerNode + 1, ClientRoutes: []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24"), netip.MustParsePrefix("2001:db8:113::/48")}})
	w := &world{T: t, protocols: protocols, lab: lab, api: kubeproxy.NewAPI(), dir: t.TempDir()}
	for _, node := range w.lab.Nodes() {
		for _, host := range node.Pods[:podsPerNode] {
			w.pods = append(w.pods, &pod{Host: host, node: node.Name})
		}
	}
	listener, err := w.lab.Node1.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w.api.Serve(t, listener)
	kubeproxy.MustWrite(w.file("kubeconfig"), fmt.Sprintf(`{apiVersion: v1, kind: Config, clusters: [{name: c, cluster: {server: "http://%s"}}],
  contexts: [{name: c, context: {cluster: c, user: proxy}}], current-context: c, users: [{name: proxy, user: {}}]}`, listener.Addr()))
	node := &corev1.Node{TypeMeta: metav1.TypeMeta{Kind: "Node", APIVersion: "v1"}, ObjectMeta: metav1.ObjectMeta{Name: "node1"}}
	for _, family := range netns.Families() {
		node.Status.Addresses = append(node.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: w.lab.Node1.Addr(family).String()})
	}
	w.api.Put(node)
	for _, s := range services {
		o := &corev1.Service{TypeMeta: metav1.TypeMeta{Kind: "Service", APIVersion: "v1"}, ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: s.name}}
		o.Spec = corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, ClusterIP: s.clusterIPs[0], ClusterIPs: s.clusterIPs,
			IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}}
		internal := corev1.ServiceInternalTrafficPolicyCluster
		o.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyCluster
		if s.local {
			internal, o.Spec.ExternalTrafficPolicy = corev1.ServiceInternalTrafficPolicyLocal, corev1.ServiceExternalTrafficPolicyLocal
		}
		o.Spec.InternalTrafficPolicy = &internal
		for _, protocol := range protocols {
			o.Spec.Ports = append(o.Spec.Ports, corev1.ServicePort{Name: strings.ToLower(string(protocol)), Protocol: corev1.Protocol(protocol), Port: servicePort, NodePort: s.nodePort})
		}
		w.api.Put(o)
	}
	w.publish()
	return w
}

func (w *world) file(name string) string { return filepath.Join(w.dir, name) }

// publish writes the EndpointSlices of the pods' phases. The caller holds the lock, if others may change them.
func (w *world) publish() {
	for _, s := range services {
		w.publishFor(s.name)
	}
}

// publishFor does that for one Service.
func (w *world) publishFor(service string) {
	for family, kind := range map[netns.Family]discoveryv1.AddressType{netns.IPv4: discoveryv1.AddressTypeIPv4, netns.IPv6: discoveryv1.AddressTypeIPv6} {
		slice := &discoveryv1.EndpointSlice{TypeMeta: metav1.TypeMeta{Kind: "EndpointSlice", APIVersion: "discovery.k8s.io/v1"}, AddressType: kind,
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: service + "-" + strings.ToLower(string(kind)), Labels: map[string]string{discoveryv1.LabelServiceName: service}}}
		for _, protocol := range w.protocols {
			slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{Name: new(strings.ToLower(string(protocol))), Protocol: new(corev1.Protocol(protocol)), Port: new(int32(endpointPort))})
		}
		for _, p := range w.pods {
			if p.phase != absent {
				slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{p.Addr(family).String()}, NodeName: &p.node, Conditions: p.phase.conditions()})
			}
		}
		w.api.Put(slice)
	}
}

// becomes moves a pod to a phase, and publishes it.
func (w *world) becomes(p *pod, next phase) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p.phase = next
	w.publish()
}

// starts lets a pod serve, and be ready.
func (w *world) starts(p *pod) error {
	p.servers = nil
	for _, protocol := range w.protocols {
		server, err := p.Serve(protocol, endpointPort)
		if err != nil {
			return err
		}
		p.servers = append(p.servers, server)
	}
	w.becomes(p, ready)
	return nil
}

// stops lets a pod's programs end, as after SIGTERM, and waits until no TCP connection is left, which its clients see to.
func (w *world) stops(p *pod) error {
	for _, server := range p.servers {
		select {
		case <-server.Shutdown():
		case <-time.After(patience):
			return fmt.Errorf("%s has connections %s after it began to close each at its next answer", p.Name, patience)
		}
	}
	return nil
}

// after waits as long on a machine that is not too busy.
func (w *world) after(d time.Duration) {
	done := make(chan struct{})
	defer w.lab.After(d, func() { close(done) })()
	<-done
}

// patience limits each wait for something that normally takes milliseconds, or with Kubernetes' own proxy a second, and in an emulated machine a
// minute.
const patience = 5 * time.Minute

// begin starts a program in node1, with feature gates, until the returned function is called.
func (w *world) begin(program, mode string, gates ...string) (end func()) {
	w.Helper()
	kubeproxy.MustWrite(w.file("config.yaml"), fmt.Sprintf(`apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: %s
hostnameOverride: node1
clusterCIDR: 10.244.0.0/16,fd00:10:244::/48
clientConnection: {kubeconfig: %s, contentType: application/json}
healthzBindAddress: 127.0.0.1:10256
metricsBindAddress: 127.0.0.1:10249
conntrack: {maxPerCore: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
featureGates: {%s}
`, mode, w.file("kubeconfig"), strings.Join(gates, ", ")))
	command := w.lab.Node1.Command(program, "--config", w.file("config.yaml"))
	command.Env = w.env
	w.log.Reset()
	command.Stdout, command.Stderr = &w.log, &w.log
	if err := command.Start(); err != nil {
		w.Fatal(err)
	}
	return func() {
		if err := command.Kill(); err != nil {
			w.Error(err)
		}
	}
}

// serves waits until all probes are answered.
func (w *world) serves(probes []netns.Probe) {
	w.Helper()
	for _, probe := range probes {
		w.answers(probe)
	}
}

// answers waits until a probe is answered.
func (w *world) answers(probe netns.Probe) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), patience)
	defer cancel()
	if _, _, err := probe.Until(ctx, func(a netns.Answer) bool { return a.Verdict == netns.Answered }); err != nil {
		w.Fatalf("%v\n%s", err, w.log.String())
	}
}

// cleanup removes what a program has written, and all connections.
func (w *world) cleanup(program string) {
	if out, err := w.lab.Node1.Command(program, "--cleanup", "--config", w.file("config.yaml")).CombinedOutput(); err != nil {
		w.Logf("%s --cleanup: %v\n%s", program, err, out)
	}
	if out, err := w.lab.Node1.Command("conntrack", "-F").CombinedOutput(); err != nil {
		w.Errorf("%v: %s", err, out)
	}
}

// run starts a program in node1, until the returned function is called, and waits until it serves all probes.
func (w *world) run(program, mode string, probes []netns.Probe) (stop func()) {
	w.Helper()
	end := w.begin(program, mode)
	w.serves(probes)
	return func() {
		end()
		w.cleanup(program)
		if w.Failed() {
			w.Log(w.log.String())
		}
	}
}

// probes returns one for each Service, family, protocol, and way: from a pod to the cluster IP, and from outside to the node port.
func (w *world) probes() (all []netns.Probe) {
	pods := w.lab.Node1.Pods
	for _, s := range services {
		for i, family := range netns.Families() {
			for _, protocol := range w.protocols {
				all = append(all,
					netns.Probe{From: pods[len(pods)-1], To: netip.AddrPortFrom(netip.MustParseAddr(s.clusterIPs[i]), servicePort), Protocol: protocol},
					netns.Probe{From: w.lab.Client, To: netip.AddrPortFrom(w.lab.Node1.Addr(family), uint16(s.nodePort)), Protocol: protocol})
			}
		}
	}
	return all
}
