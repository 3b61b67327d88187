//go:build linux

package main

import (
	"bufio"
	"net/http"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/config"
	"github.com/seed-11a05479/kube-proxy/test/clusters"
	"github.com/seed-11a05479/kube-proxy/test/kubeproxy"
	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// drained is a Service in both families with an endpoint that terminates in one of them.
var drained = clusters.Service("default/drained", `type: NodePort, clusterIPs: ["10.96.0.30", "fd00:10:96::30"], ipFamilies: [IPv4, IPv6], ipFamilyPolicy: RequireDualStack,
  ports: [{name: tcp, port: 80, nodePort: 30030}, {name: udp, protocol: UDP, port: 80, nodePort: 30030}]`) +
	clusters.Slice("default/drained", "drained-1", "{name: tcp, port: 8080}, {name: udp, protocol: UDP, port: 8080}",
		"{addresses: [10.244.2.2], nodeName: node2, conditions: {ready: false, serving: true, terminating: true}}") +
	strings.Replace(clusters.Slice("default/drained", "drained-2", "{name: tcp, port: 8080}, {name: udp, protocol: UDP, port: 8080}",
		`{addresses: ["fd00:10:244:2::2"], nodeName: node2}`), "addressType: IPv4", "addressType: IPv6", 1)

// TestKernelDrain counts the open connections of a Service in each mode, and waits until they are closed. A Node that is being removed
// answers load balancers with 503, and the kubelet with 200.
func TestKernelDrain(t *testing.T) {
	t.Parallel()
	for _, mode := range []config.ProxyMode{config.ProxyModeNFTables, config.ProxyModeIPTables} {
		t.Run(string(mode), func(t *testing.T) {
			w := newTrial(t)
			kubeproxy.MustWrite(filepath.Join(w.dir, "drained.yaml"), drained)
			w.proxy(mode, "--healthz-bind-address", "127.0.0.1:10256")
			var flows []*netns.Flow
			for _, probe := range []netns.Probe{
				{From: w.lab.Node1.Pods[0], To: netip.MustParseAddrPort("10.96.0.30:80")},
				{From: w.lab.Node1.Pods[0], To: netip.MustParseAddrPort("[fd00:10:96::30]:80")},
				{From: w.lab.Client, To: netip.AddrPortFrom(w.lab.Node1.IPv4, 30030)},
				{From: w.lab.Node1.Pods[0], To: netip.MustParseAddrPort("10.96.0.30:80"), Protocol: netns.UDP},
			} {
				flow, answer := probe.Open()
				if flow == nil {
					t.Fatalf("%s: %s", probe, answer)
				}
				flows = append(flows, flow)
			}
			w.prints(3, []string{"4 open connections to 3 endpoints\n", "10.244.2.2:8080/TCP", "terminating, serving", "[fd00:10:244:2::2]:8080/TCP", "ready"}, "drain", "--timeout", "0")
			w.prints(3, []string{`"connections": 1`, `"state": "Ready"`}, "service", "drain", "drained", "--endpoint", "fd00:10:244:2::2", "--timeout", "0", "-o", "json")
			w.prints(0, []string{"no connection is open"}, "service", "drain", "default/drained", "--endpoint", "10.244.2.9")
			w.prints(1, []string{"Service default/draned is not served", "did you mean default/drained?"}, "service", "drain", "draned")
			w.prints(2, []string{`"x" is not an IPv4 or IPv6 address`}, "service", "drain", "drained", "--endpoint", "x")
			w.waits(flows[0], flows[2])
			w.removed()
			flows[1].Close() // a connection that nothing refers to any more is closed at any time
		})
	}
}

// waits closes the TCP connections to the endpoint that terminates as soon as a command says that it waits for them. The UDP flow stays
// until conntrack forgets it, which another program does here.
func (w *trial) waits(flows ...*netns.Flow) {
	w.Helper()
	command := w.lab.Node1.Command(w.program, "service", "drain", "drained", "--endpoint", "10.244.2.2")
	var out strings.Builder
	command.Stdout = &out
	progress, err := command.StderrPipe()
	if err == nil {
		err = command.Start()
	}
	if err != nil {
		w.Fatal(err)
	}
	lines := bufio.NewScanner(progress)
	if !lines.Scan() || !strings.HasSuffix(lines.Text(), ": 3 open connections to 2 endpoints") {
		w.Errorf("the progress is %q", lines.Text())
	}
	for _, flow := range flows {
		flow.Close()
	}
	if out, err := w.lab.Node1.Command("conntrack", "-D", "-p", "udp", "--orig-dst", "10.96.0.30").CombinedOutput(); err != nil {
		w.Errorf("%v: %s", err, out)
	}
	for lines.Scan() {
		w.Log(lines.Text())
	}
	if err := command.Wait(); err != nil || out.String() != "no connection is open\n" {
		w.Errorf("drain ended with %q, %v", out.String(), err)
	}
}

// removed taints the Node, as the cluster autoscaler does before it removes it.
func (w *trial) removed() {
	w.Helper()
	kubeproxy.MustWrite(filepath.Join(w.dir, "node.yaml"), `apiVersion: v1
kind: Node
metadata: {name: node1}
spec: {taints: [{key: ToBeDeletedByClusterAutoscaler, effect: NoSchedule}]}
status: {addresses: [{type: InternalIP, address: `+w.lab.Node1.IPv4.String()+`}]}
`)
	client := http.Client{Transport: &http.Transport{DialContext: w.lab.Node1.Dial, DisableKeepAlives: true}}
	code := func(path string) int {
		response, err := client.Get("http://127.0.0.1:10256" + path)
		if err != nil {
			w.Fatal(err)
		}
		response.Body.Close()
		return response.StatusCode
	}
	for began := time.Now(); code("/healthz") != http.StatusServiceUnavailable; time.Sleep(20 * time.Millisecond) {
		if time.Since(began) > patience {
			w.Fatalf("/healthz answers %d on a Node that is being removed, want 503", code("/healthz"))
		}
	}
	if got := code("/livez"); got != http.StatusOK {
		w.Errorf("/livez answers %d on a Node that is being removed, want 200", got)
	}
	w.prints(3, []string{"1 open connection", "load balancers get 503 from /healthz"}, "drain", "--timeout", "0")
}
