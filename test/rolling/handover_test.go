//go:build linux

package rolling

import (
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed-11a05479/kube-proxy/test/kubeproxy"
	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// running is a program in a mode.
type running struct {
	program
	mode string
}

func (r running) String() string { return r.name + " " + r.mode }

// balanced are the addresses of the Service of the same name, which is of type LoadBalancer and has session affinity.
var balanced = struct{ clusterIPs, ingress []string }{[]string{"10.96.0.12", "fd00:10:96::12"}, []string{"203.0.113.12", "2001:db8:113::12"}}

// TestKernelHandover replaces a proxy by one in another mode, or by the other program, under load: no new connection may fail, and none
// that is kept. Kubernetes' own is one of them with PEER; it removes the rules of other modes before it writes its own, so new connections
// that fail then are only counted. It also hands over from ipvs mode, made by hand without PEER, if the kernel has it.
func TestKernelHandover(t *testing.T) {
	variants, load, settle := []string{"nft"}, rate{perSecond: 300, keptEach: 3, keptPause: 200 * time.Millisecond}, 2*time.Second
	if os.Getenv("ROLLING") == "whole" {
		variants, load, settle = []string{"nft", "legacy"}, rate{perSecond: 1000, keptEach: 36, keptPause: time.Second}, 5*time.Second
	}
	if os.Getenv("KERNELS") != "" { // one emulated processor does all
		load, settle = rate{perSecond: 100, keptEach: 5, keptPause: 4 * time.Second}, 15*time.Second
	}
	for _, variant := range variants {
		t.Run(variant, func(t *testing.T) {
			w := newWorld(t, 2, netns.TCP, netns.UDP)
			for _, p := range w.pods {
				w.must(w.starts(p))
			}
			w.balance()
			// As a network plugin does. If nothing else on the node translates addresses, the kernel stops to track connections when
			// Kubernetes' own has removed the rules of another mode.
			w.node("nft 'table inet plugin { chain masquerading { type nat hook postrouting priority 101; ip saddr 198.51.100.0/24 masquerade; ip6 saddr 2001:db8:51::/64 masquerade; }; }'")
			if variant == "legacy" {
				w.legacy()
			}
			w.handOvers(load, settle)
		})
	}
}

// handOvers hands over between all programs.
func (w *world) handOvers(load rate, settle time.Duration) {
	var rows strings.Builder
	table := tabwriter.NewWriter(&rows, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "from\tto\t\tnew\tkept")
	outer := w.T
	for _, pair := range pairs(outer) {
		outer.Run(pair[0].String()+" to "+pair[1].String(), func(t *testing.T) {
			w.T = t
			defer func() { w.T = outer }()
			fresh, kept := w.handOver(pair[0], pair[1], load, settle)
			for _, family := range netns.Families() {
				for _, protocol := range w.protocols {
					group := fmt.Sprintf("%s %s", protocol, family)
					fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", pair[0], pair[1], group, fresh[group], kept[group])
				}
			}
		})
	}
	table.Flush()
	w.Logf("requests that failed, of new connections and of %d that are kept:\n%s", load.keptEach*len(w.everywhere()), rows.String())
}

// pairs returns the programs that are replaced, and by which.
func pairs(t *testing.T) (all [][2]running) {
	t.Helper()
	this := program{"this", kubeproxy.Path(t)}
	modes := []running{{this, "nftables"}, {this, "iptables"}}
	peer := program{"Kubernetes'", os.Getenv("PEER")}
	if peer.path != "" {
		modes = append(modes, running{peer, "nftables"}, running{peer, "iptables"})
	}
	for _, from := range modes {
		for _, to := range modes {
			if from != to && (from.program == this || to.program == this) {
				all = append(all, [2]running{from, to})
			}
		}
	}
	if exec.Command("modprobe", "-a", "ip_vs", "ip_vs_rr", "ip_set", "dummy").Run() == nil {
		for _, to := range modes[:2] {
			all = append(all, [2]running{{peer, "ipvs"}, to})
		}
	}
	return all
}

// balance adds the Service balanced, whose endpoints are all pods.
func (w *world) balance() {
	o := &corev1.Service{TypeMeta: metav1.TypeMeta{Kind: "Service", APIVersion: "v1"}, ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "balanced"}}
	o.Spec = corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, ClusterIP: balanced.clusterIPs[0], ClusterIPs: balanced.clusterIPs,
		IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}, SessionAffinity: corev1.ServiceAffinityClientIP,
		SessionAffinityConfig: &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: new(int32(10800))}},
		InternalTrafficPolicy: new(corev1.ServiceInternalTrafficPolicyCluster), ExternalTrafficPolicy: corev1.ServiceExternalTrafficPolicyCluster}
	for _, protocol := range w.protocols {
		o.Spec.Ports = append(o.Spec.Ports, corev1.ServicePort{Name: strings.ToLower(string(protocol)), Protocol: corev1.Protocol(protocol), Port: servicePort, NodePort: 30082})
	}
	for _, ip := range balanced.ingress {
		o.Status.LoadBalancer.Ingress = append(o.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: ip})
	}
	w.api.Put(o)
	w.publishFor("balanced")
}

// everywhere are the probes to all Services, also from the node itself to cluster IPs, and from outside to load balancer IPs.
func (w *world) everywhere() []netns.Probe {
	all := w.probes()
	for i := range netns.Families() {
		for _, protocol := range w.protocols {
			to := func(ip string) netip.AddrPort { return netip.AddrPortFrom(netip.MustParseAddr(ip), servicePort) }
			all = append(all,
				netns.Probe{From: w.lab.Node1.Host, To: to(services[0].clusterIPs[i]), Protocol: protocol},
				netns.Probe{From: w.lab.Node1.Pods[2], To: to(balanced.clusterIPs[i]), Protocol: protocol},
				netns.Probe{From: w.lab.Client, To: to(balanced.ingress[i]), Protocol: protocol})
		}
	}
	for i := range all {
		all[i].Timeout = 900 * time.Millisecond // an answer that is late because the machine is busy must not count as lost
	}
	return all
}

// handOver lets one program serve, replaces it by another one under load, and returns how many requests failed, by protocol and family.
func (w *world) handOver(from, to running, r rate, settle time.Duration) (fresh, kept map[string]count) {
	w.Helper()
	fresh, kept = map[string]count{}, map[string]count{}
	probes := w.everywhere()
	defer w.cleanup(kubeproxy.Path(w))
	end := func() {}
	if from.path == "" {
		w.byHand()
	} else {
		end = w.begin(from.path, from.mode)
	}
	w.serves(probes)
	if from.mode == "ipvs" {
		w.node("ipvsadm --set 900 30 60") // connections of UDP, and those that ended, are soon forgotten
	}
	l := start(w.Context(), probes, r)
	w.after(settle)
	end()
	ended := time.Since(l.begun)
	var gates []string
	if from.mode == "ipvs" {
		gates = []string{"DrainIPVSMode: true"}
	}
	end = w.begin(to.path, to.mode, gates...)
	defer func() {
		end()
		if w.Failed() {
			w.Log(w.log.String())
		}
	}()
	w.healthy()
	w.Logf("%s ended after %s; %s was healthy after %s", from, ended.Round(time.Millisecond), to, time.Since(l.begun).Round(time.Millisecond))
	w.after(2 * settle)
	counts, first := l.stop()
	for k, c := range counts {
		sums, group := fresh, fmt.Sprintf("%s %s", k.protocol, k.family)
		if k.kept {
			sums = kept
		}
		sums[group] = sums[group].plus(c)
		if c.failed == 0 {
			continue
		}
		w.Logf("%+v: %s failed; the first: %s", k, c, first[k])
		if k.kept || to.name == "this" || from.mode == to.mode {
			w.Errorf("%+v: %s failed, want none", k, c)
		}
	}
	if from.mode == "ipvs" {
		w.drained()
	}
	return fresh, kept
}

// drained waits until nothing of ipvs mode is left.
func (w *world) drained() {
	w.Helper()
	for begun := time.Now(); ; time.Sleep(time.Second) {
		left := w.node("ipvsadm -S -n; /sbin/ip -o addr show dev kube-ipvs0 2>/dev/null; ipset list -n; true")
		if strings.TrimSpace(left) == "" {
			return
		}
		if time.Since(begun) > 5*time.Minute {
			w.Errorf("what ipvs mode has left is still there:\n%s", left)
			return
		}
	}
}

// node runs a shell script in node1.
func (w *world) node(script string) string {
	w.Helper()
	out, err := w.lab.Node1.Command("sh", "-c", script).CombinedOutput()
	if err != nil {
		w.Errorf("%s: %v: %s", script, err, out)
	}
	return string(out)
}

// healthy waits until the proxy has written its rules.
func (w *world) healthy() {
	w.Helper()
	client := http.Client{Transport: &http.Transport{DialContext: w.lab.Node1.Dial, DisableKeepAlives: true}}
	for begun := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		response, err := client.Get("http://127.0.0.1:10256/healthz")
		if err == nil {
			response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return
			}
		}
		if time.Since(begun) > patience {
			w.Fatalf("not healthy: %v\n%s", err, w.log.String())
		}
	}
}

// legacy makes iptables the legacy variant for all programs: for this one by the kubelet's chain.
func (w *world) legacy() {
	w.Helper()
	path := w.TempDir()
	for _, name := range []string{"iptables", "ip6tables"} {
		for _, suffix := range []string{"", "-save", "-restore"} {
			found, err := exec.LookPath(name + "-legacy" + suffix)
			w.must(err)
			w.must(os.Symlink(found, filepath.Join(path, name+suffix)))
		}
		w.node(name + "-legacy -w -t mangle -N KUBE-IPTABLES-HINT")
	}
	w.env = append(os.Environ(), "PATH="+path+":"+os.Getenv("PATH"))
}
