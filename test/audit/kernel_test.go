//go:build linux

package audit

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/seed-11a05479/kube-proxy/pkg/findings"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
	"github.com/seed-11a05479/kube-proxy/test/kubeproxy"
	"github.com/seed-11a05479/kube-proxy/test/netns"
)

const (
	// undefined is a port that no Service has, unallocated an address of the ServiceCIDR that none has. The gateway answers there if a packet is
	// passed on.
	undefined   = 9999
	unallocated = "10.96.200.200"
	// second is another address of node1.
	second = "172.18.0.111"
	// patience limits the wait for a proxy's rules.
	patience = 5 * time.Minute
)

// packet is one to send.
type packet struct {
	from     string
	to       netip.AddrPort
	protocol netns.Protocol
}

func (p packet) String() string { return fmt.Sprintf("%s > %s/%s", p.from, p.to, p.protocol) }

// target is where packets are sent, and which finding must name it if the modes treat them differently.
type target struct {
	to       netip.AddrPort
	protocol netns.Protocol
	// service is NAMESPACE/NAME, code the finding about it, and names the words of its message. Without a service, names are words of what
	// differs for all Services. Nothing may differ if there are no words.
	service string
	code    findings.Code
	names   []string
}

// TestKernelAudit sends packets before and after the change of the mode.
func TestKernelAudit(t *testing.T) {
	netns.Require(t, "nft", "conntrack")
	for _, s := range shapes(t) {
		ours, theirs := kubeproxy.Path(t), os.Getenv("PEER")
		fromIPVS := strings.Contains(s.part("config.yaml"), "mode: ipvs")
		t.Run(s.name, func(t *testing.T) {
			if fromIPVS && (theirs == "" || os.Getenv("KERNELS") == "") {
				t.Skip("needs ip_vs and Kubernetes' own kube-proxy: run make kernels PEER=1; TestGoldenFindings has what needs no packets")
			}
			t.Parallel()
			w := newWorld(t, s)
			after := w.run(ours, "nftables")
			if fromIPVS {
				must(t, exec.Command("modprobe", "-a", "ip_vs", "ip_vs_sh", "ip_set", "dummy").Run())
				before := w.run(theirs, "ipvs")
				w.compare("Kubernetes' own in ipvs", "nftables", before, after, s.audit(t, "--to-mode", "nftables"))
				after := w.run(ours, "iptables")
				// The gateway answers the client past node1: what follows is invalid to conntrack, which only iptables mode drops.
				bypassed := packet{"client", netip.AddrPortFrom(netip.MustParseAddr(unallocated), undefined), netns.TCP}
				after[bypassed] = before[bypassed]
				w.compare("Kubernetes' own in ipvs", "iptables", before, after, s.audit(t, "--to-mode", "iptables"))
				return
			}
			before := w.run(ours, "iptables")
			w.compare("iptables", "nftables", before, after, s.audit(t, "--to-mode", "nftables", "--skip", "ExternalIPs,StatusNotServed"))
			w.compare("nftables", "iptables", after, before, s.audit(t, "--from", "nftables", "--to-mode", "iptables", "--skip", "ExternalIPs,StatusNotServed"))
			if theirs != "" {
				w.compare("Kubernetes' own in iptables", "nftables", w.run(theirs, "iptables"), after, s.audit(t, "--to-mode", "nftables"))
			}
		})
	}
}

// world is a lab with an API server in node1 that has the objects of a shape.
type world struct {
	*testing.T
	shape   *shape
	lab     *netns.Lab
	server  string
	targets []target
}

func newWorld(t *testing.T, s *shape) *world {
	t.Helper()
	w := &world{T: t, shape: s, lab: netns.Start(t, netns.Options{ClientRoutes: []netip.Prefix{
		netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("fd00:10:96::/112"), netip.MustParsePrefix("192.0.2.0/24")}})}
	for _, node := range w.lab.Nodes() {
		for _, pod := range node.Pods {
			w.serve(pod, 8080)
		}
	}
	must(t, w.lab.Node1.AddAddress(netip.MustParsePrefix(second+"/32")))
	api := kubeproxy.NewAPI()
	for _, object := range s.objects {
		api.Put(object)
		if service, ok := object.(*corev1.Service); ok {
			w.ofService(service)
		}
		if ranges, ok := object.(*networkingv1.ServiceCIDR); ok && len(ranges.Spec.CIDRs) > 0 {
			w.add(target{to: netip.AddrPortFrom(netip.MustParseAddr(unallocated), undefined), names: []string{"addresses in ServiceCIDRs that no Service has"}}, netns.TCP, netns.UDP)
		}
	}
	w.serve(w.lab.Gateway, undefined)
	for _, target := range w.targets {
		if target.to.Port() == undefined && target.to.Addr().Is4() && target.protocol == netns.TCP {
			must(t, w.lab.Gateway.AddAddress(netip.PrefixFrom(target.to.Addr(), 32)))
		}
	}
	listener, err := w.lab.Node1.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	api.Serve(t, listener)
	w.server = listener.Addr().String()
	return w
}

func (w *world) serve(host *netns.Host, port uint16) {
	w.Helper()
	for _, protocol := range []netns.Protocol{netns.TCP, netns.UDP} {
		_, err := host.Serve(protocol, port)
		must(w.T, err)
	}
}

func (w *world) add(t target, protocols ...netns.Protocol) {
	for _, protocol := range protocols {
		t.protocol = protocol
		w.targets = append(w.targets, t)
	}
}

// ofService adds the addresses of a Service, served or not.
func (w *world) ofService(s *corev1.Service) {
	name := s.Namespace + "/" + s.Name
	at := func(text string, port int32) netip.AddrPort {
		return netip.AddrPortFrom(netip.MustParseAddr(text), uint16(port))
	} //nolint:gosec // a port
	for _, text := range s.Spec.ClusterIPs {
		if s.Labels["service.kubernetes.io/service-proxy-name"] == "" {
			w.add(target{to: at(text, undefined), names: []string{"port of a cluster IP that its Service does not have"}}, netns.TCP, netns.UDP)
		}
	}
	for _, port := range s.Spec.Ports {
		protocol, frontend := netns.Protocol(port.Protocol), func(address string) string { return fmt.Sprintf("%s:%d/%s", address, port.Port, port.Protocol) }
		for _, text := range s.Spec.ClusterIPs {
			w.add(target{to: at(text, port.Port), service: name}, protocol)
		}
		for _, text := range s.Spec.ExternalIPs {
			w.add(target{to: at(text, port.Port), service: name, code: findings.ExternalIPs, names: []string{frontend(text)}}, protocol)
		}
		if text := s.Spec.LoadBalancerIP; text != "" {
			w.add(target{to: at(text, port.Port), service: name}, protocol)
		}
		for _, ingress := range s.Status.LoadBalancer.Ingress {
			w.add(target{to: at(ingress.IP, port.Port), service: name, code: plan.ProblemStatusNotServed, names: []string{ingress.IP}}, protocol)
		}
		if port.NodePort == 0 {
			continue
		}
		number := fmt.Sprintf("%d/%s", port.NodePort, port.Protocol)
		for text, words := range map[string][]string{w.lab.Node1.IPv4.String(): nil, w.lab.Node1.IPv6.String(): nil,
			second: {number, "every address of a node"}, "127.0.0.1": {number, "127.0.0.1"}} {
			w.add(target{to: at(text, port.NodePort), service: name, code: findings.NodePorts, names: words}, protocol)
		}
	}
}

// packets are those to all targets.
func (w *world) packets() (all []packet) {
	for _, target := range w.targets {
		for _, from := range []string{"client", "pod1a", "pod2b", "node1"} {
			if from == "node1" || !target.to.Addr().IsLoopback() {
				all = append(all, packet{from, target.to, target.protocol})
			}
		}
	}
	return all
}

// modeLine is the line of a configuration with the mode.
var modeLine = regexp.MustCompile(`(?m)^mode: .*$`)

// start starts a proxy in node1 with a configuration, in which the path of the kubeconfig is replaced by that of one for the API server, until stop
// is called, which also removes the rules and the connections.
func start(t *testing.T, lab *netns.Lab, program, server, text string) (stop func(), log *bytes.Buffer) {
	t.Helper()
	dir := t.TempDir()
	kubeconfig, config := filepath.Join(dir, "kubeconfig"), filepath.Join(dir, "config.yaml")
	kubeproxy.MustWrite(kubeconfig, fmt.Sprintf(`{apiVersion: v1, kind: Config, clusters: [{name: c, cluster: {server: "http://%s"}}],
  contexts: [{name: c, context: {cluster: c, user: proxy}}], current-context: c, users: [{name: proxy, user: {}}]}`, server))
	for _, path := range []string{"/var/lib/kube-proxy/kubeconfig.conf", "/var/lib/kube-proxy/kubeconfig"} {
		if strings.Contains(text, path) {
			text = strings.Replace(text, path, kubeconfig, 1)
			break
		}
	}
	kubeproxy.MustWrite(config, text)
	command := lab.Node1.Command(program, "--config", config, "--hostname-override=node1")
	log = new(bytes.Buffer)
	command.Stdout, command.Stderr = log, log
	must(t, command.Start())
	return func() {
		must(t, command.Kill())
		if out, err := lab.Node1.Command(program, "--cleanup", "--config", config).CombinedOutput(); err != nil {
			t.Logf("%s --cleanup: %v\n%s", program, err, out)
		}
		forget(t, lab)
		if t.Failed() {
			t.Logf("%v with this configuration:\n%s\n%s", command.Args, text, log.String())
		}
	}, log
}

// forget removes the connections that node1 knows.
func forget(t *testing.T, lab *netns.Lab) {
	if out, err := lab.Node1.Command("conntrack", "-F").CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// run starts a proxy in node1 in a mode, and returns what becomes of the packets.
func (w *world) run(program, mode string) map[packet]string {
	w.Helper()
	stop, log := start(w.T, w.lab, program, w.server, modeLine.ReplaceAllString(w.shape.part("config.yaml"), "mode: "+mode))
	defer stop()
	ctx, cancel := context.WithTimeout(w.Context(), patience)
	defer cancel()
	for _, probe := range w.served() { // one of each family is served when all are
		if _, _, err := probe.Until(ctx, func(a netns.Answer) bool { return a.Verdict == netns.Answered }); err != nil {
			w.Fatalf("%s in %s mode: %v\n%s", program, mode, err, log.String())
		}
	}
	packets := w.packets()
	var probes []netns.Probe
	for _, p := range packets {
		from, err := w.lab.Host(p.from)
		must(w.T, err)
		probes = append(probes, netns.Probe{From: from, To: p.to, Protocol: p.protocol})
	}
	became := map[packet]string{}
	for i, answer := range netns.SendAll(probes...) {
		became[packets[i]] = w.outcome(answer)
	}
	return became
}

// served are probes to cluster IPs that must be answered.
func (w *world) served() (all []netns.Probe) {
	for _, target := range w.targets {
		if target.service != "" && target.service != "default/mesh" && target.code == "" && target.to.Addr() != netip.MustParseAddr("192.0.2.22") {
			all = append(all, netns.Probe{From: w.lab.Node1.Host, To: target.to, Protocol: target.protocol})
		}
	}
	return all
}

// outcome describes an answer: who answers, and whom it sees, or what else happened.
func (w *world) outcome(a netns.Answer) string {
	if a.Verdict != netns.Answered {
		return a.Verdict.String()
	}
	seen := "node1" // which has several addresses
	for _, host := range w.lab.Hosts() {
		if host.IPv4 == a.Source.Addr() || host.IPv6 == a.Source.Addr() {
			seen = host.Name
		}
	}
	return a.Endpoint + " sees " + seen
}

// compare holds the findings about a change against what became of the packets before and after.
func (w *world) compare(from, to string, before, after map[packet]string, report *findings.Report) {
	w.Helper()
	shown := map[string]bool{} // the code and Service of findings, and differences of all Services, that packets show
	differ := 0
	for _, target := range w.targets {
		named, same := target.named(report), true
		for _, p := range w.packets() {
			if p.to != target.to || p.protocol != target.protocol || before[p] == after[p] {
				continue
			}
			differ++
			same = false
			if named == "" {
				w.Errorf("from %s to %s: %s: %s before, %s after, and no finding names it", from, to, p, before[p], after[p])
			}
			shown[named] = true
		}
		if named != "" && target.service != "" && same {
			w.Errorf("from %s to %s: nothing differs for %s/%s, but there is %s with %q", from, to, target.to, target.protocol, named, target.names)
		}
	}
	for _, f := range report.Findings {
		switch {
		case f.Code == findings.LoadBalancerIP:
			for p, what := range after {
				if p.to.Addr() == netip.MustParseAddr("192.0.2.22") && what != netns.Dropped.String() && what != netns.Unreachable.String() {
					w.Errorf("%s: %s, and the finding is: %s", p, what, f.Message)
				}
			}
		case f.Kind == "Service" && !shown[string(f.Code)+" "+f.Namespace+"/"+f.Name]:
			w.Errorf("from %s to %s: no packet shows %s %s: %s", from, to, f.Code, f.Object(), f.Message)
		}
	}
	for _, difference := range report.ModeDifferences {
		aboutPackets := strings.HasPrefix(difference, "Packets to") || strings.HasPrefix(difference, "A connection to")
		if aboutPackets && !shown[difference] {
			w.Errorf("from %s to %s: no packet shows: %s", from, to, difference)
		}
	}
	w.Logf("from %s to %s: %d of %d packets differ; %d findings", from, to, differ, len(before), len(report.Findings))
}

// named returns the finding, or the difference for all Services, that names a target; empty if there is none.
func (t target) named(report *findings.Report) string {
	has := func(text string) bool {
		return len(t.names) > 0 && !slices.ContainsFunc(t.names, func(word string) bool { return !strings.Contains(text, word) })
	}
	if t.service == "" {
		if i := slices.IndexFunc(report.ModeDifferences, has); i >= 0 {
			return report.ModeDifferences[i]
		}
		return ""
	}
	for _, f := range report.Findings {
		if f.Code == t.code && f.Namespace+"/"+f.Name == t.service && has(f.Message) {
			return string(f.Code) + " " + t.service
		}
	}
	return ""
}
