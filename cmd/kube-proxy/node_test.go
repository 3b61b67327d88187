//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/config"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/source/manifests"
	"github.com/seed-11a05479/kube-proxy/test/kubeproxy"
	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// apiAddress is where the API server of a nodeTrial listens in node1.
const apiAddress = "127.0.0.1:8081"

// nodeTrial is a trial with an API server in place of manifests, and a proxy that must not end before the test does.
type nodeTrial struct {
	*trial
	api   *kubeproxy.API
	log   bytes.Buffer
	cmd   *netns.Cmd
	ended chan struct{} // closed when the proxy ends
}

// start runs kube-proxy in node1 with the API server, which need not listen yet.
func (w *nodeTrial) start(mode config.ProxyMode, flags ...string) {
	w.Helper()
	w.cmd = w.lab.Node1.Command(w.program, append([]string{"--master", "http://" + apiAddress, "--proxy-mode", string(mode), "--hostname-override", "node1",
		"--nodeport-addresses", "primary",
		"--metrics-bind-address", "127.0.0.1:10249", "--healthz-bind-address", "127.0.0.1:10256"}, flags...)...)
	w.cmd.Stdout, w.cmd.Stderr = &w.log, &w.log
	if err := w.cmd.Start(); err != nil {
		w.Fatal(err)
	}
	w.ended = make(chan struct{})
	go func() {
		_ = w.cmd.Wait() // a second call returns the same
		close(w.ended)
	}()
	w.Cleanup(func() {
		select {
		case <-w.ended:
			w.Error("kube-proxy ended by itself")
		default:
		}
		_ = w.cmd.Kill() // fails if it has ended
		<-w.ended
		if w.Failed() {
			w.Log(w.log.String())
		}
	})
}

// listen lets the API server answer.
func (w *nodeTrial) listen() {
	w.Helper()
	listener, err := w.lab.Node1.Listen("tcp", apiAddress)
	if err != nil {
		w.Fatal(err)
	}
	w.api.Serve(w.T, listener)
}

// waits polls /healthz until it answers with the code, and waitingFor contains these words; empty means that it is empty.
func (w *nodeTrial) waits(code int, words string) {
	w.Helper()
	client := http.Client{Transport: &http.Transport{DialContext: w.lab.Node1.Dial, DisableKeepAlives: true}, Timeout: patience}
	var last string
	for began := time.Now(); time.Since(began) < patience; time.Sleep(20 * time.Millisecond) {
		response, err := client.Get("http://127.0.0.1:10256/healthz")
		if err != nil {
			last = err.Error()
			continue
		}
		page, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil {
			w.Fatal(err)
		}
		var body struct{ WaitingFor []string }
		if err := json.Unmarshal(page, &body); err != nil {
			w.Fatalf("%v: %s", err, page)
		}
		last = response.Status + " " + string(page)
		waiting := strings.Join(body.WaitingFor, "\n")
		if response.StatusCode == code && strings.Contains(waiting, words) && (words != "") == (waiting != "") {
			return
		}
	}
	w.Fatalf("/healthz is not %d, waiting for %q; the last answer: %s", code, words, last)
}

// node is node1's Node with these addresses.
func (w *nodeTrial) node(addresses ...netip.Addr) *corev1.Node {
	n := &corev1.Node{TypeMeta: metav1.TypeMeta{Kind: "Node", APIVersion: "v1"}, ObjectMeta: metav1.ObjectMeta{Name: "node1"}}
	for _, address := range addresses {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: address.String()})
	}
	return n
}

// clusterIPs are the Service's, with its port.
func clusterIPs() []netip.AddrPort {
	return []netip.AddrPort{netip.MustParseAddrPort("10.96.0.10:80"), netip.MustParseAddrPort("[fd00:10:96::10]:80")}
}

// newNodeTrial makes everything but the proxy. The API server has the Service and its endpoint, and no Node.
func newNodeTrial(t *testing.T) *nodeTrial {
	w := &nodeTrial{trial: newTrial(t), api: kubeproxy.NewAPI()}
	file := manifests.Parse("web.yaml", []byte(nodePortService), false)
	if file.Err != nil {
		t.Fatal(file.Err)
	}
	for _, object := range file.Objects {
		w.api.Put(object)
	}
	return w
}

// TestKernelNode starts the proxy, in each mode, while the API server does not answer yet. Then the Node does not exist, has no
// addresses at first, and is deleted and created again with others. From the first sync
// on no connection to a cluster IP fails, and node ports are served as soon as their addresses are known.
func TestKernelNode(t *testing.T) {
	t.Parallel()
	for _, mode := range []config.ProxyMode{config.ProxyModeNFTables, config.ProxyModeIPTables} {
		t.Run(string(mode), func(t *testing.T) {
			w := newNodeTrial(t)
			w.start(mode, "--cluster-cidr", "10.244.0.0/16,fd00:10:244::/48")
			w.waits(http.StatusServiceUnavailable, "the API server")
			w.sample(`serviceproxy_waiting{reason="api_server"}`, "1")
			w.listen()
			w.waits(http.StatusOK, "the Node object")
			w.sample(`serviceproxy_waiting{reason="node"}`, "1")
			w.sample(`serviceproxy_waiting{reason="api_server"}`, "0")

			var streams []*netns.Stream
			for _, to := range clusterIPs() {
				probe := netns.Probe{From: w.lab.Node1.Pods[1], To: to, Timeout: 900 * time.Millisecond}
				w.until(probe, netns.Answered, w.endpoint().Name)
				streams = append(streams, probe.Stream(t.Context(), 50))
			}
			own := []netip.Addr{w.lab.Node1.IPv4, w.lab.Node1.IPv6}
			w.api.Put(w.node())
			w.waits(http.StatusOK, "status.addresses")
			w.nodePorts(netns.Refused, own...)
			w.api.Put(w.node(own...))
			w.waits(http.StatusOK, "")
			w.nodePorts(netns.Answered, own...)

			w.api.Remove(w.node())
			w.waits(http.StatusServiceUnavailable, "the Node object") // load balancers go elsewhere
			w.nodePorts(netns.Answered, own...)
			w.api.Put(w.node())
			w.waits(http.StatusOK, "")
			w.nodePorts(netns.Answered, own...)
			others := []netip.Addr{netip.MustParseAddr("192.0.2.77"), netip.MustParseAddr("2001:db8::77")}
			for _, addr := range others {
				if err := w.lab.Node1.AddAddress(netip.PrefixFrom(addr, addr.BitLen())); err != nil {
					t.Fatal(err)
				}
			}
			w.api.Put(w.node(others...))
			w.nodePorts(netns.Answered, others...)
			w.nodePorts(netns.Refused, own...)
			for _, stream := range streams {
				if tally := stream.Stop(); tally.Failed() > 0 || tally.Sent == 0 {
					t.Errorf("connections to a cluster IP failed: %s", tally)
				}
			}
		})
	}
}

// nodePorts asks for the node port on these addresses until the answer is as wanted.
func (w *nodeTrial) nodePorts(want netns.Verdict, addrs ...netip.Addr) {
	w.Helper()
	endpoint := ""
	if want == netns.Answered {
		endpoint = w.endpoint().Name
	}
	for _, addr := range addrs {
		w.until(netns.Probe{From: w.lab.Client, To: netip.AddrPortFrom(addr, 30080)}, want, endpoint)
	}
}

// sample waits until a metric has a value.
func (w *nodeTrial) sample(name, want string) {
	w.Helper()
	for began := time.Now(); w.metric(name) != want; time.Sleep(20 * time.Millisecond) {
		if time.Since(began) > patience {
			w.Fatalf("%s is %q, want %q", name, w.metric(name), want)
		}
	}
}

// TestKernelPodCIDRs changes spec.podCIDRs under a proxy that detects local traffic by them, in each mode. While they are
// unknown every connection to a cluster IP is masqueraded; after that those of pods outside them.
func TestKernelPodCIDRs(t *testing.T) {
	t.Parallel()
	for _, mode := range []config.ProxyMode{config.ProxyModeNFTables, config.ProxyModeIPTables} {
		t.Run(string(mode), func(t *testing.T) {
			w := newNodeTrial(t)
			w.listen()
			w.start(mode, "--detect-local-mode", "NodeCIDR")
			node := w.node(w.lab.Node1.IPv4, w.lab.Node1.IPv6)
			w.api.Put(node)
			w.waits(http.StatusOK, "spec.podCIDRs")
			pod := w.lab.Node1.Pods[0]
			w.seenAs(w.lab.Node1.Host)
			for _, step := range []struct {
				podCIDRs []string
				seenAs   *netns.Host
			}{
				{[]string{"10.244.1.0/24", "fd00:10:244:1::/64"}, pod},
				{[]string{"10.244.7.0/24", "fd00:10:244:7::/64"}, w.lab.Node1.Host},
				{[]string{"10.244.1.0/24", "fd00:10:244:1::/64"}, pod},
			} {
				node.Spec.PodCIDRs = step.podCIDRs
				w.api.Put(node)
				w.waits(http.StatusOK, "")
				w.seenAs(step.seenAs)
			}
		})
	}
}

// seenAs asks for the cluster IPs from a pod of node1 until the endpoint sees this host's address.
func (w *nodeTrial) seenAs(host *netns.Host) {
	w.Helper()
	for _, to := range clusterIPs() {
		ctx, cancel := context.WithTimeout(w.Context(), patience)
		probe := netns.Probe{From: w.lab.Node1.Pods[0], To: to}
		_, last, err := probe.Until(ctx, func(a netns.Answer) bool {
			return a.Verdict == netns.Answered && a.Source.Addr() == host.Addr(netns.FamilyOf(to.Addr()))
		})
		cancel()
		if err != nil {
			w.Errorf("%s: want the source %s: %v; the last answer: %s", probe, host.Name, err, last)
		}
	}
}
