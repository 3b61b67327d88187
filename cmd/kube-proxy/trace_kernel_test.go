//go:build linux

package main

import (
	"encoding/json"
	"errors"
	"io"
	"net/netip"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/config"
	"github.com/seed-11a05479/kube-proxy/pkg/apis/status/v1alpha1"
	"github.com/seed-11a05479/kube-proxy/pkg/packets"
	"github.com/seed-11a05479/kube-proxy/test/kubeproxy"
	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// tracing is "kube-proxy trace" that runs in node1.
type tracing struct {
	*trial
	cmd         *netns.Cmd
	out, stderr netns.Log
}

// trace starts a trace and waits until it has begun.
func (w *trial) trace(args ...string) *tracing {
	w.Helper()
	r := &tracing{trial: w, cmd: w.lab.Node1.Command(w.program, append([]string{"trace", "-o", "json", "--duration", "10m"}, args...)...)}
	r.cmd.Stdout, r.cmd.Stderr = &r.out, &r.stderr
	if err := r.cmd.Start(); err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() {
		if err := r.cmd.Kill(); err != nil {
			w.Error(err)
		}
	})
	for began := time.Now(); !strings.Contains(r.stderr.String(), "Tracing up to"); time.Sleep(10 * time.Millisecond) {
		if time.Since(began) > patience {
			w.Fatalf("the trace has not begun: %s", r.stderr.String())
		}
	}
	return r
}

// end waits for the trace's end, after an interrupt unless it ends itself, and returns its packets.
func (r *tracing) end(interrupt bool, want int) (all []v1alpha1.PacketTrace) {
	r.Helper()
	if interrupt {
		if err := r.cmd.Process.Signal(syscall.SIGINT); err != nil {
			r.Fatal(err)
		}
	}
	var exit *exec.ExitError
	if err := r.cmd.Wait(); err != nil && !errors.As(err, &exit) {
		r.Fatal(err)
	}
	if code := r.cmd.ProcessState.ExitCode(); code != want {
		r.Errorf("exit code %d, want %d: %s%s", code, want, r.stderr.String(), r.out.String())
	}
	for in := json.NewDecoder(strings.NewReader(r.out.String())); ; {
		var packet v1alpha1.PacketTrace
		if err := in.Decode(&packet); err == io.EOF {
			break
		} else if err != nil {
			r.Fatalf("%v: %s", err, r.out.String())
		}
		all = append(all, packet)
	}
	if left := r.tables(); strings.Contains(left, "trace") {
		r.Errorf("after its end there are tables:\n%s", left)
	}
	return all
}

// tables lists node1's tables.
func (w *trial) tables() string {
	w.Helper()
	return w.nft("list tables")
}

// nft runs a command of nft in node1.
func (w *trial) nft(command string) string {
	w.Helper()
	out, err := w.lab.Node1.Command("nft", command).CombinedOutput()
	if err != nil {
		w.Fatalf("nft %s: %v: %s", command, err, out)
	}
	return string(out)
}

// opening returns the first packet from an address to a destination that opens a connection.
func opening(all []v1alpha1.PacketTrace, from netip.Addr, to string) (found v1alpha1.PacketTrace, ok bool) {
	i := slices.IndexFunc(all, func(p v1alpha1.PacketTrace) bool {
		source, _ := netip.ParseAddrPort(p.Source)
		return source.Addr() == from && p.Destination == to && (p.Protocol == "UDP" || slices.Equal(p.Flags, []string{"SYN"}))
	})
	if i < 0 {
		return found, false
	}
	return all[i], true
}

// TestKernelTrace traces real packets in both modes and families: from the node, from a pod and from outside.
func TestKernelTrace(t *testing.T) {
	t.Parallel()
	w := newTrial(t)
	kubeproxy.MustWrite(filepath.Join(w.dir, "inspected.yaml"), inspectedServices())
	for mode, chains := range map[config.ProxyMode][2]string{
		config.ProxyModeNFTables: {"pick-1", "unserved"}, config.ProxyModeIPTables: {"KUBE-SVC-", "KUBE-SERVICES"},
	} {
		t.Run(string(mode), func(t *testing.T) {
			w := &trial{T: t, lab: w.lab, program: w.program, dir: w.dir}
			w.proxy(mode)
			w.traceService(chains[0])
			w.traceRefused(chains[1])
			w.traceFirewall()
			w.traceItself()
			w.traceKilled()
			w.prints(0, []string{"The proxy has repaired nothing"}, "drift")
			w.prints(0, []string{"The kernel has the rules"}, "render", "--diff")
		})
	}
}

// traceService traces default/web. chain is part of the name of the chain that chooses the endpoint.
func (w *trial) traceService(chain string) {
	w.Helper()
	node, pod, client := w.lab.Node1.Host, w.lab.Node1.Pods[0], w.lab.Client
	type way struct {
		from *netns.Host
		to   string
		kind string
		is   netns.Protocol
	}
	nodePort := func(a netip.Addr) string { return netip.AddrPortFrom(a, 30080).String() }
	ways := []way{
		{node, "10.96.0.10:80", "ClusterIP", netns.TCP}, {node, "[fd00:10:96::10]:80", "ClusterIP", netns.TCP},
		{pod, "10.96.0.10:80", "ClusterIP", netns.UDP}, {pod, "[fd00:10:96::10]:80", "ClusterIP", netns.TCP},
		{client, nodePort(w.lab.Node1.IPv4), "NodePort", netns.TCP}, {client, nodePort(w.lab.Node1.IPv6), "NodePort", netns.UDP},
	}
	r := w.trace("default/web", "--count", "1000")
	w.prints(1, []string{"error: trace packets: another trace is running on this node"}, "trace", "10.96.0.10")
	for _, way := range ways {
		if answer := (netns.Probe{From: way.from, To: netip.MustParseAddrPort(way.to), Protocol: way.is}).Send(); answer.Verdict != netns.Answered {
			w.Fatalf("%s to %s: %s", way.from, way.to, answer)
		}
	}
	all := r.end(true, 0)
	for _, way := range ways {
		to := netip.MustParseAddrPort(way.to)
		from, endpoint := way.from.IPv4, "10.244.2.2:8080"
		if to.Addr().Is6() {
			from, endpoint = way.from.IPv6, "[fd00:10:244:2::2]:8080"
		}
		p, ok := opening(all, from, way.to)
		masqueraded := p.TranslatedSource != ""
		if !ok || p.Service != "default/web" || p.Kind != way.kind || p.TranslatedDestination != endpoint || p.Established || p.Verdict != "Sent" ||
			p.Location != "OtherNode" || masqueraded != (way.kind == "NodePort") || !meets(&p, chain) {
			w.Errorf("%s to %s %s: %v, %+v", way.from, way.is, way.to, ok, p)
		}
	}
	established := func(p v1alpha1.PacketTrace) bool {
		return p.Established && p.Verdict == "Sent" && p.TranslatedDestination == "10.244.2.2:8080" && !meets(&p, chain)
	}
	if !slices.ContainsFunc(all, established) {
		w.Errorf("no packet of an established connection: %+v", all)
	}
}

// meets reports whether a packet met a chain with that part in its name.
func meets(p *v1alpha1.PacketTrace, chain string) bool {
	return slices.ContainsFunc(p.Chains, func(c v1alpha1.TracedChain) bool {
		return slices.ContainsFunc(c.Steps, func(s v1alpha1.TracedStep) bool { return strings.Contains(s.Chain, chain) })
	})
}

// traceRefused traces a Service without endpoints.
func (w *trial) traceRefused(chain string) {
	w.Helper()
	r := w.trace("default/gone", "--count", "1", "--from", w.lab.Node1.Pods[0].IPv4.String())
	probe := netns.Probe{From: w.lab.Node1.Pods[0], To: netip.MustParseAddrPort("10.96.0.21:80"), Protocol: netns.TCP}
	if answer := probe.Send(); answer.Verdict != netns.Refused {
		w.Fatalf("%s: %s", probe, answer)
	}
	all := r.end(false, 3)
	if len(all) != 1 || all[0].Verdict != "Rejected" || all[0].Service != "default/gone" || !strings.Contains(all[0].Reason, "chain "+chain) ||
		!strings.Contains(all[0].Reason, "no usable endpoint") || strings.Contains(all[0].Reason, "not kube-proxy's") {
		w.Errorf("a Service without endpoints: %+v", all)
	}
}

// traceFirewall traces a Service whose endpoint another table does not let through.
func (w *trial) traceFirewall() {
	w.Helper()
	w.nft(`add table inet firewall; add chain inet firewall closed { type filter hook forward priority 10; policy accept; };` +
		` add rule inet firewall closed ip daddr 10.244.2.2 drop comment "no web"`)
	defer w.nft("delete table inet firewall")
	r := w.trace("10.96.0.10:80", "--count", "1")
	probe := netns.Probe{From: w.lab.Node1.Pods[0], To: netip.MustParseAddrPort("10.96.0.10:80"), Protocol: netns.TCP}
	if answer := probe.Send(); answer.Verdict != netns.Dropped {
		w.Fatalf("%s: %s", probe, answer)
	}
	all := r.end(false, 3)
	if len(all) != 1 || all[0].Verdict != "Dropped" || all[0].TranslatedDestination != "10.244.2.2:8080" ||
		all[0].Reason != "dropped by table inet firewall, chain closed (no web), which is not kube-proxy's" {
		w.Errorf("a foreign firewall: %+v", all)
	}
}

// traceItself traces packets of the node to itself, which arrive by the loopback interface.
func (w *trial) traceItself() {
	w.Helper()
	server, err := w.lab.Node1.Serve(netns.TCP, 9000)
	if err != nil {
		w.Fatal(err)
	}
	defer server.Close()
	to := netip.AddrPortFrom(w.lab.Node1.IPv4, 9000)
	r := w.trace(to.Addr().String(), "--new", "--count", "1000", "--from", to.Addr().String())
	if answer := (netns.Probe{From: w.lab.Node1.Host, To: to, Protocol: netns.TCP}).Send(); answer.Verdict != netns.Answered {
		w.Fatal(answer)
	}
	all := r.end(true, 0)
	all = slices.DeleteFunc(all, func(p v1alpha1.PacketTrace) bool { return p.Destination != to.String() }) // others of the node
	if len(all) != 1 || all[0].Verdict != "Delivered" || all[0].Service != "" || all[0].Interface != "" || !slices.Equal(all[0].Flags, []string{"SYN"}) {
		w.Errorf("from the node to itself: %+v", all)
	}
}

// traceKilled kills a trace: nothing of it is left.
func (w *trial) traceKilled() {
	w.Helper()
	r := w.trace("default/web")
	if now := w.tables(); !strings.Contains(now, "table ip kube-proxy-trace") || !strings.Contains(now, "table ip6 kube-proxy-trace") {
		w.Errorf("while it runs the tables are:\n%s", now)
	}
	if err := r.cmd.Kill(); err != nil {
		w.Fatal(err)
	}
	for began := time.Now(); strings.Contains(w.tables(), "trace"); time.Sleep(10 * time.Millisecond) {
		if time.Since(began) > patience {
			w.Fatalf("after SIGKILL there are tables:\n%s", w.tables())
		}
	}
}

// TestKernelTraceFlood traces a Service under load: no connection fails, and a bounded number of packets is traced.
func TestKernelTraceFlood(t *testing.T) {
	t.Parallel()
	w := newTrial(t)
	w.proxy(config.ProxyModeNFTables)
	r := w.trace("default/web", "--count", "1000")
	began := time.Now()
	tally := netns.Probe{From: w.lab.Node1.Pods[0], To: netip.MustParseAddrPort("10.96.0.10:80"), Protocol: netns.TCP, Parallel: 8}.Spread(1000)
	if tally.Failed() > 0 {
		t.Errorf("connections failed: %s", tally)
	}
	all := r.end(true, 0)
	if most := packets.PerSecond * (2 + int(time.Since(began)/time.Second)); len(all) == 0 || len(all) > most {
		t.Errorf("traced %d packets, want at most %d", len(all), most)
	}
}

// TestKernelTraceErrors asks for what cannot be traced.
func TestKernelTraceErrors(t *testing.T) {
	t.Parallel()
	w := newTrial(t)
	w.prints(1, []string{"no kube-proxy answers at http://127.0.0.1:10249"}, "trace", "default/web")
	w.prints(4, []string{"No packet was seen"}, "trace", "default/web", "--manifests", w.dir, "--node", "node1", "--duration", "100ms")
	w.proxy(config.ProxyModeIPTables)
	w.prints(1, []string{"Service default/wbe is not served", "did you mean default/web?"}, "trace", "default/wbe")
	w.prints(1, []string{"Service default/web has no port https"}, "trace", "default/web:https")
	out, err := w.lab.Node1.Command("setpriv", "--bounding-set=-net_admin", "--inh-caps=-net_admin", w.program, "trace", "default/web").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "CAP_NET_ADMIN is missing") {
		t.Errorf("without CAP_NET_ADMIN: %v: %s", err, out)
	}
	if out, err := w.lab.Node1.Command("iptables-legacy", "-w", "-t", "mangle", "-N", "KUBE-IPTABLES-HINT").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	w.prints(1, []string{"error: the rules here are written with iptables-legacy"}, "trace", "default/web")
	if left := w.tables(); strings.Contains(left, "trace") {
		t.Errorf("there are tables:\n%s", left)
	}
}
