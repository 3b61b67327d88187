//go:build linux

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/seed-11a05479/kube-proxy/test/netns"
)

const (
	healthz        = "127.0.0.1:10256"
	metricsAddress = "127.0.0.1:10249"
	// patience is the time limit from a change in the API to a packet that sees it, on a busy machine. After an outage of
	// the server, client-go retries after up to 60 s, and it reads a token's file once a minute.
	patience = 3 * time.Minute
)

// world is a lab with an API server and a proxy in node1. The tests share everything except the proxy and its log.
type world struct {
	t       *testing.T
	lab     *netns.Lab
	cluster *Cluster
	client  kubernetes.Interface
	binary  string
	proxy   *process
	log     string
}

// process is a proxy that was started.
type process struct {
	*netns.Cmd
	ended chan struct{} // closed when it exits
}

// TestKernelProxyAndServer runs all tests with one API server, because its start takes some seconds.
func TestKernelProxyAndServer(t *testing.T) {
	netns.Require(t, "nft")
	w := newWorld(t)
	for _, test := range []struct {
		name string
		run  func(*world)
	}{
		{"service lifecycle", serviceLifecycle},
		{"udp flow", udpFlow},
		{"selectors", selectors},
		{"local policy", localPolicy},
		{"service cidr", serviceCIDR},
		{"acknowledged addresses", acknowledgedAddresses},
		{"external IPs", externalIPs},
		{"external IPs served", externalIPsServed},
		{"guide", guide},
		{"audit", auditCluster},
		{"policies", policies},
		{"rights", rights},
		{"server restart", serverRestart},
		{"backup restored", backupRestored},
		{"proxy restart", proxyRestart},
		{"node changes", nodeChanges},
		{"API server trouble", apiServerTrouble},
	} {
		t.Run(test.name, func(t *testing.T) {
			run := *w
			run.t = t
			run.log = filepath.Join(t.TempDir(), "kube-proxy.log")
			t.Cleanup(func() {
				if t.Failed() {
					t.Logf("the proxy's log:\n%s", run.logged())
				}
			})
			t.Cleanup(run.clear)
			run.start("proxy")
			t.Cleanup(run.stop)
			run.healthy()
			test.run(&run)
		})
	}
}

func newWorld(t *testing.T) *world {
	t.Helper()
	binary := os.Getenv("KUBE_PROXY_BIN")
	if binary == "" {
		binary = filepath.Join("..", "..", "bin", "kube-proxy")
	}
	binary, err := filepath.Abs(binary)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(binary); err != nil {
		t.Fatalf("%v; run make build first", err)
	}
	lab := netns.Start(t, netns.Options{ClientRoutes: []netip.Prefix{
		netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("fd00:10:96::/112"), netip.MustParsePrefix("192.0.2.0/24")}})
	for _, node := range lab.Nodes() {
		for _, pod := range node.Pods {
			for _, protocol := range []netns.Protocol{netns.TCP, netns.UDP} {
				if _, err := pod.Serve(protocol, 8080); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute) // the servers may have to be built
	defer cancel()
	dir := t.TempDir()
	cluster, err := StartCluster(ctx, lab.Node1.Host, dir)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, lab: lab, cluster: cluster, client: cluster.Client, binary: binary}
	server, err := cluster.Client.Discovery().ServerVersion()
	w.must(err)
	t.Log("the API server is", server.GitVersion)
	w.createNode()
	return w
}

func (w *world) createNode() {
	w.t.Helper()
	_, err := w.client.CoreV1().Nodes().Create(w.t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: w.lab.Node1.Name}}, metav1.CreateOptions{})
	w.must(err)
	w.nodeAddresses(w.lab.Node1.IPv4.String(), w.lab.Node1.IPv6.String())
}

// nodeAddresses sets the addresses in node1's Node object.
func (w *world) nodeAddresses(addresses ...string) {
	w.t.Helper()
	nodes := w.client.CoreV1().Nodes()
	node, err := nodes.Get(w.t.Context(), w.lab.Node1.Name, metav1.GetOptions{})
	w.must(err)
	node.Status.Addresses = nil
	for _, address := range addresses {
		node.Status.Addresses = append(node.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: address})
	}
	_, err = nodes.UpdateStatus(w.t.Context(), node, metav1.UpdateOptions{})
	w.must(err)
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// start starts the proxy as a user of the API server, with additional flags.
func (w *world) start(user string, flags ...string) {
	w.t.Helper()
	kubeconfig, err := w.cluster.Kubeconfig(user)
	w.must(err)
	w.startWith(kubeconfig, flags...)
}

// startWith starts the proxy with a kubeconfig.
func (w *world) startWith(kubeconfig string, flags ...string) {
	w.t.Helper()
	log, err := os.OpenFile(w.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	w.must(err)
	defer log.Close() // the process has its own file descriptor
	command := w.lab.Node1.Command(w.binary, append([]string{"--kubeconfig=" + kubeconfig, "--hostname-override=" + w.lab.Node1.Name,
		"--proxy-mode=nftables", "--cluster-cidr=10.244.0.0/16,fd00:10:244::/48",
		"--healthz-bind-address=" + healthz, "--metrics-bind-address=" + metricsAddress, "-v=2"}, flags...)...)
	command.Stdout, command.Stderr = log, log
	w.must(command.Start())
	w.proxy = &process{Cmd: command, ended: make(chan struct{})}
	go func(p *process) {
		_ = p.Wait() // later calls return the same result
		close(p.ended)
	}(w.proxy)
}

// healthy waits until the proxy is healthy.
func (w *world) healthy() {
	w.t.Helper()
	w.eventually("the proxy is healthy", func() string {
		select {
		case <-w.proxy.ended:
			w.t.Fatalf("the proxy exited: %v", w.proxy.Wait())
		default:
		}
		if code, body := w.get("http://" + healthz + "/healthz"); code != http.StatusOK {
			return fmt.Sprintf("%d %s", code, body)
		}
		return ""
	})
}

// stop stops the proxy with SIGTERM, like the kubelet, and checks its exit status. It does nothing if the proxy has exited.
func (w *world) stop() {
	w.t.Helper()
	select {
	case <-w.proxy.ended:
	default:
		w.must(w.proxy.Process.Signal(syscall.SIGTERM))
	}
	select {
	case <-w.proxy.ended:
	case <-time.After(patience):
		w.t.Errorf("the proxy did not exit within %v of SIGTERM", patience)
		w.must(w.proxy.Kill())
	}
	if err := w.proxy.Wait(); err != nil {
		w.t.Errorf("the proxy exited with %v", err)
	}
}

// kill kills the proxy (SIGKILL).
func (w *world) kill() {
	w.t.Helper()
	w.must(w.proxy.Kill())
	<-w.proxy.ended
}

func (w *world) logged() string {
	text, err := os.ReadFile(w.log)
	w.must(err)
	return string(text)
}

// get sends a request to a server on node1.
func (w *world) get(url string) (code int, body string) {
	client := http.Client{Transport: &http.Transport{DialContext: w.lab.Node1.Dial, DisableKeepAlives: true}, Timeout: 5 * time.Second}
	response, err := client.Get(url)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	w.must(err)
	return response.StatusCode, string(text)
}

// eventually repeats a check until it returns no complaint.
func (w *world) eventually(what string, check func() (complaint string)) {
	w.t.Helper()
	deadline := time.Now().Add(patience)
	for {
		complaint := check()
		if complaint == "" {
			return
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("%s: timed out after %s: %s", what, patience, complaint)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// answers waits until exactly these endpoints share a frontend, and checks that other endpoints do not answer again.
func (w *world) answers(from *netns.Host, protocol netns.Protocol, to string, endpoints ...string) netns.Tally {
	w.t.Helper()
	probe := netns.Probe{From: from, To: netip.MustParseAddrPort(to), Protocol: protocol}
	var tally netns.Tally
	w.eventually(probe.String(), func() string {
		tally = probe.Spread(16 * len(endpoints))
		if tally.Failed() > 0 || len(tally.Endpoints) != len(endpoints) {
			return tally.String()
		}
		for _, endpoint := range endpoints {
			if tally.Endpoints[endpoint] == 0 {
				return tally.String()
			}
		}
		return ""
	})
	for endpoint := range probe.Spread(16 * len(endpoints)).Endpoints {
		if !slices.Contains(endpoints, endpoint) {
			w.t.Fatalf("%s: %s answers again after it was removed", probe, endpoint)
		}
	}
	return tally
}

// silent waits until no endpoint answers for a frontend.
func (w *world) silent(from *netns.Host, protocol netns.Protocol, to string) {
	w.t.Helper()
	probe := netns.Probe{From: from, To: netip.MustParseAddrPort(to), Protocol: protocol}
	w.eventually("no answer of "+probe.String(), func() string {
		if answer := probe.Send(); answer.Verdict == netns.Answered {
			return answer.String()
		}
		return ""
	})
}

// service creates a dual-stack Service on port 80, TCP and UDP.
func (w *world) service(name, ipv4, ipv6 string, edit ...func(*corev1.Service)) {
	w.t.Helper()
	policy := corev1.IPFamilyPolicyRequireDualStack
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{
		ClusterIP: ipv4, ClusterIPs: []string{ipv4, ipv6}, IPFamilyPolicy: &policy,
		Ports: []corev1.ServicePort{{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP}, {Name: "udp", Port: 80, Protocol: corev1.ProtocolUDP}},
	}}
	for _, e := range edit {
		e(s)
	}
	_, err := w.client.CoreV1().Services("default").Create(w.t.Context(), s, metav1.CreateOptions{})
	w.must(err)
}

// change changes a Service.
func (w *world) change(name string, edit func(*corev1.Service)) {
	w.t.Helper()
	api := w.client.CoreV1().Services("default")
	s, err := api.Get(w.t.Context(), name, metav1.GetOptions{})
	w.must(err)
	edit(s)
	_, err = api.Update(w.t.Context(), s, metav1.UpdateOptions{})
	w.must(err)
}

// remove deletes a Service but not its slices.
func (w *world) remove(name string) {
	w.t.Helper()
	w.must(w.client.CoreV1().Services("default").Delete(w.t.Context(), name, metav1.DeleteOptions{}))
}

// endpoints creates or replaces a Service's slices, one for each family.
func (w *world) endpoints(service string, pods ...*netns.Host) {
	w.t.Helper()
	for _, family := range netns.Families() {
		kind := discoveryv1.AddressType(family.String())
		slice := &discoveryv1.EndpointSlice{
			ObjectMeta:  metav1.ObjectMeta{Name: service + "-" + strings.ToLower(string(kind)), Labels: map[string]string{discoveryv1.LabelServiceName: service}},
			AddressType: kind,
			Ports:       []discoveryv1.EndpointPort{port("http", corev1.ProtocolTCP), port("udp", corev1.ProtocolUDP)},
		}
		for _, pod := range pods {
			node := w.lab.Node1.Name
			if strings.HasPrefix(pod.Name, "pod2") {
				node = w.lab.Node2.Name
			}
			slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{pod.Addr(family).String()}, NodeName: &node})
		}
		w.apply(slice)
	}
}

func (w *world) apply(slice *discoveryv1.EndpointSlice) {
	w.t.Helper()
	ctx, api := w.t.Context(), w.client.DiscoveryV1().EndpointSlices("default")
	old, err := api.Get(ctx, slice.Name, metav1.GetOptions{})
	if err != nil {
		_, err = api.Create(ctx, slice, metav1.CreateOptions{})
	} else {
		slice.ResourceVersion = old.ResourceVersion
		_, err = api.Update(ctx, slice, metav1.UpdateOptions{})
	}
	w.must(err)
}

func port(name string, protocol corev1.Protocol) discoveryv1.EndpointPort {
	number := int32(8080)
	return discoveryv1.EndpointPort{Name: &name, Protocol: &protocol, Port: &number}
}

// clear deletes the objects of a test.
func (w *world) clear() {
	w.t.Helper()
	ctx := context.Background() // the test's context is canceled by now
	services, err := w.client.CoreV1().Services("default").List(ctx, metav1.ListOptions{})
	w.must(err)
	for _, s := range services.Items {
		if s.Name != "kubernetes" {
			w.must(w.client.CoreV1().Services("default").Delete(ctx, s.Name, metav1.DeleteOptions{}))
		}
	}
	w.must(w.client.DiscoveryV1().EndpointSlices("default").DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
}

// lines returns the lines of the proxy's log that contain a text.
func (w *world) lines(word string) []string {
	var found []string
	for line := range bytes.Lines([]byte(w.logged())) {
		if bytes.Contains(bytes.ToLower(line), []byte(word)) {
			found = append(found, string(line))
		}
	}
	return found
}
