//go:build linux

package audit

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/seed-11a05479/kube-proxy/test/kubeproxy"
	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// sample is the number of packets that are compared after each change, few how often each is sent if nothing differs.
const sample, few = 400, 5

// vip is a load balancer IP that node1 has itself, bridge its address in the range of pods.
const vip, bridge = "192.0.2.50", "10.244.1.1"

// externals are addresses of external clients, which the client has, more than can be used.
var externals = []netip.Prefix{netip.MustParsePrefix("198.18.0.0/15"), netip.MustParsePrefix("2001:db8:18::/64")}

// randomConfig is without the mode and one of the settings, which the seed chooses.
const randomConfig = `apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
clientConnection: {kubeconfig: /var/lib/kube-proxy/kubeconfig.conf, contentType: application/json}
conntrack: {maxPerCore: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
featureGates: {AllowServiceExternalIPs: true}
`

var settings = []string{
	"iptables: {minSyncPeriod: 10ms}\nnftables: {minSyncPeriod: 10ms}\nclusterCIDR: 10.244.0.0/16,fd00:10:244::/48\n",
	"iptables: {minSyncPeriod: 10ms}\nnftables: {minSyncPeriod: 10ms}\ndetectLocalMode: BridgeInterface\ndetectLocal: {bridgeInterface: cbr0}\n",
	"iptables: {masqueradeAll: true}\nnftables: {masqueradeAll: true}\nnodePortAddresses: [172.18.0.0/24, 'fd00:172:18::/64', 127.0.0.0/8]\n",
	"iptables: {minSyncPeriod: 10ms}\nnftables: {minSyncPeriod: 10ms}\ndetectLocalMode: NodeCIDR\nnodePortAddresses: [primary]\n",
}

// supervised is a program that starts theirs again when it ends, as it does when its Node changes.
const supervised = `#!/bin/sh
until setpriv --pdeathsig KILL %s "$@" || [ "$1" = --cleanup ]; do echo restarted; done
`

// TestKernelRandomClusters lets Kubernetes' own kube-proxy and this one serve the same random cluster, each in a lab of its own, and compares
// what becomes of the same packets after each change, of flows that were open before it, and of health checks. SEED is the seed, ROUNDS the
// number of changes.
func TestKernelRandomClusters(t *testing.T) {
	netns.Require(t, "nft", "conntrack", "ip", "setpriv")
	theirs := os.Getenv("PEER")
	if theirs == "" {
		t.Skip("needs Kubernetes' own kube-proxy: PEER=$(make -s peer) go test -run TestKernelRandomClusters ./test/audit")
	}
	number := func(variable string, otherwise int) int {
		n, err := strconv.Atoi(cmp.Or(os.Getenv(variable), strconv.Itoa(otherwise)))
		must(t, err)
		return n
	}
	ours, seed, rounds := kubeproxy.Path(t), number("SEED", 1), number("ROUNDS", 20)
	script := filepath.Join(t.TempDir(), "supervised")
	must(t, os.WriteFile(script, fmt.Appendf(nil, supervised, theirs), 0o700)) //nolint:gosec // a program
	for _, mode := range []string{"nftables", "iptables"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			api := kubeproxy.NewAPI()
			p := &pair{T: t, mode: mode, seed: seed, named: map[string]int{}, random: newRandom(uint64(seed), api)}
			p.labs = [2]*netns.Lab{p.lab(api, ours), p.lab(api, script)}
			for round := 1; round <= rounds; round++ {
				p.round(round)
			}
			t.Logf("seed %d: %d clusters, up to %d packets and %d flows in each lab; intended differences: %v", seed, rounds, p.sent, p.asked, p.named)
		})
	}
}

// pair is a lab with this proxy, and one with theirs.
type pair struct {
	*testing.T
	mode   string
	seed   int
	random *random
	labs   [2]*netns.Lab
	last   map[packet]frontend
	flows  [2]map[opened][]flow
	sent   int
	asked  int
	named  map[string]int // how often each rule was needed
}

func (p *pair) setting() string { return settings[p.seed%len(settings)] }

// lab builds a lab in which a proxy runs.
func (p *pair) lab(api *kubeproxy.API, program string) *netns.Lab {
	lab := netns.Start(p.T, netns.Options{ClientRoutes: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/15"), netip.MustParsePrefix("fd00:10:96::/47"),
		netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("2001:db8:2::/64")}})
	for _, node := range lab.Nodes() {
		for _, host := range append(slices.Clone(node.Pods), node.Host) {
			for _, protocol := range netns.Protocols() {
				_, err := host.Serve(protocol, 8080, 8081)
				must(p.T, err)
			}
		}
	}
	for _, address := range []string{second, vip} {
		must(p.T, lab.Node1.AddAddress(netip.MustParsePrefix(address+"/32")))
	}
	must(p.T, lab.Client.SetSysctl("ipv6/ip_nonlocal_bind", "1"))
	must(p.T, lab.Node1.SetSysctl("netfilter/nf_conntrack_sctp_timeout_cookie_wait", "600")) // associations of the lab stay there
	for _, prefix := range externals {
		_, err := lab.Client.Command("ip", "route", "add", "local", prefix.String(), "dev", "lo").Output()
		must(p.T, err)
	}
	must(p.T, lab.Node1.RouteVia(lab.Client, externals...))
	listener, err := lab.Node1.Listen("tcp", "127.0.0.1:0")
	must(p.T, err)
	api.Serve(p.T, listener)
	stop, _ := start(p.T, lab, program, listener.Addr().String(), randomConfig+p.setting()+"mode: "+p.mode)
	p.Cleanup(stop)
	return lab
}

// round changes the cluster, waits until both proxies serve the change, and compares what becomes of flows from before, and of packets to any
// addresses of the cluster and of the one before.
func (p *pair) round(n int) {
	p.random.steps, p.random.gaps = nil, map[string]bool{}
	for range 1 + p.random.IntN(6) {
		p.random.step()
	}
	p.await(n)
	current := p.random.frontends()
	p.ask(n, current)
	all := maps.Clone(current)
	for k := range p.last {
		if _, known := current[k]; !known {
			all[k] = frontend{kind: "gone"}
		}
	}
	p.last = current
	packets := slices.SortedFunc(maps.Keys(all), func(a, b packet) int { return strings.Compare(a.String(), b.String()) })
	p.random.Shuffle(len(packets), func(i, j int) { packets[i], packets[j] = packets[j], packets[i] })
	packets = packets[:min(len(packets), sample)]
	var became [2]map[packet]string
	for _, times := range []int{few, few, 25, 50, 50, 100} { // endpoints are picked at random
		p.both(func(i int) { became[i] = send(p.labs[i], packets, all, times, p.sent) })
		p.sent += len(packets) * (times + 1)
		packets = slices.DeleteFunc(packets, func(k packet) bool { return became[0][k] == became[1][k] })
	}
	for _, k := range packets {
		ours, theirs := became[0][k], became[1][k]
		if row := p.intended(all[k], k, ours, theirs); row != "" {
			p.named[row]++
			continue
		}
		p.Errorf("round %d, %v: %s (%s): ours %s; theirs %s\n%s", n, p.random.steps, k, all[k].kind, ours, theirs, p.random.describe(all[k].service))
	}
	p.health(n)
	for _, lab := range p.labs {
		forget(p.T, lab)
	}
	p.open(current)
}

// await waits until both proxies serve what was changed after all else.
func (p *pair) await(n int) {
	ctx, cancel := context.WithTimeout(p.Context(), patience)
	defer cancel()
	for to, wanted := range p.random.mark(n) {
		for _, lab := range p.labs {
			probe := netns.Probe{From: lab.Node1.Host, To: to, Every: 10 * time.Millisecond}
			if _, _, err := probe.Until(ctx, func(a netns.Answer) bool {
				return strings.HasPrefix(outcome(a), wanted)
			}); err != nil {
				p.Fatalf("round %d, %v: %v", n, p.random.steps, err)
			}
		}
	}
}

// probe returns a probe that sends a packet, an external client's from one of their addresses.
func (p packet) probe(lab *netns.Lab, external int) netns.Probe {
	probe := netns.Probe{From: lab.Client, To: p.to, Protocol: p.protocol, Timeout: 100 * time.Millisecond}
	if p.from == "external" {
		probe.Source = netip.AddrPortFrom(externalAddr(p.to.Addr(), external), 0)
	} else {
		probe.From, _ = lab.Host(p.from)
	}
	return probe
}

// send sends packets once in a lab, and then so often again (only those that were answered, if these are few), the external clients' from one address
// after the other.
func send(lab *netns.Lab, packets []packet, to map[packet]frontend, times, external int) map[packet]string {
	seen := map[packet]map[string]bool{}
	once := func(packets []packet) (answered []packet) {
		var probes []netns.Probe
		for _, k := range packets {
			external++
			probes = append(probes, k.probe(lab, external))
			if seen[k] == nil || to[k].sticky(k) {
				seen[k] = map[string]bool{} // the first packets to several addresses of a Service were sent at the same time
			}
		}
		for i, answer := range netns.SendAll(probes...) {
			k := packets[i]
			if seen[k][outcome(answer)] = true; answer.Verdict == netns.Answered || times > few {
				answered = append(answered, k)
			}
		}
		return answered
	}
	once(slices.Repeat(once(packets), times))
	became := map[packet]string{}
	for k, outcomes := range seen {
		became[k] = strings.Join(slices.Sorted(maps.Keys(outcomes)), " or ")
		if to[k].sticky(k) && strings.HasPrefix(became[k], "answered") {
			became[k] = fmt.Sprintf("answered by %d", len(outcomes))
		}
	}
	return became
}

// externalAddr returns an address of external clients in the family of another address.
func externalAddr(other netip.Addr, n int) netip.Addr {
	if other.Is4() {
		return netip.AddrFrom4([4]byte{198, 18 | byte(n>>16)&1, byte(n >> 8), byte(n)})
	}
	return netip.MustParseAddr(fmt.Sprintf("2001:db8:18::%x:%x", n>>16, n&0xffff))
}

// outcome describes who answers, and whom it sees, or what else happened.
func outcome(a netns.Answer) string {
	switch {
	case a.Verdict != netns.Answered:
		return a.Verdict.String()
	case a.Source.Addr() == a.Local.Addr():
		return fmt.Sprintf("answered by %s at %v, which sees it", a.Endpoint, a.Reached)
	default:
		return fmt.Sprintf("answered by %s at %v, which sees %v", a.Endpoint, a.Reached, a.Source.Addr())
	}
}

// intended returns what a difference is in docs/differences.md, if it is there.
func (p *pair) intended(f frontend, k packet, ours, theirs string) string {
	at := k.to.Addr()
	unserved := at == netip.IPv6Loopback() || strings.Contains(p.setting(), "nodePortAddresses: [172") && (at.String() == vip || at.String() == bridge) ||
		strings.Contains(p.setting(), "primary") && !p.random.primary(at)
	external := f.kind == "load balancer IP" || f.kind == "external IP"
	// without leaves out what the sender itself answers, or does not.
	without := func(outcomes string) string {
		return strings.Join(slices.DeleteFunc(strings.Split(outcomes, " or "), func(one string) bool {
			return one == "dropped" || strings.HasPrefix(one, "answered by "+k.from+" ")
		}), " or ")
	}
	switch {
	case f.sticky(k) && min(ours, theirs) == "answered by 1" && max(ours, theirs) == "dropped":
		return "it sticks to an endpoint that cannot answer it" // which external clients find in both labs
	case p.mode == "iptables" && f.kind == "node port" && unserved && ours == "refused" && theirs == "dropped":
		return "an address that does not serve node ports"
	case p.mode == "iptables" && k.from == "node1" && at.String() == bridge && strings.ReplaceAll(ours, "sees 172.18.0.11", "sees it") == theirs:
		return "the node connects from an address in the range of pods"
	case p.mode == "iptables" && external && k.from == "node1" && ours == "refused" && theirs == "dropped":
		return "the node connects to an address without an endpoint"
	case p.mode == "iptables" && f.kind == "load balancer IP" && len(f.service.Spec.LoadBalancerSourceRanges) > 0 && ours == "dropped" && theirs == "refused":
		return "a client outside source ranges, without endpoints"
	case p.mode == "nftables" && (p.random.misplaced(k) || k.from == "pod2a") && without(ours) == without(theirs) && strings.Contains(theirs, "dropped"):
		return "an endpoint connects to itself, and its slice does not name this node"
	case p.mode == "iptables" && k.from == "pod2a" && without(ours) == without(theirs) && strings.Contains(ours, "dropped"):
		return "an endpoint on another node connects to itself"
	}
	return ""
}

// health compares what health check node ports, /healthz and /livez answer.
func (p *pair) health(n int) {
	for _, node := range []string{"172.18.0.11", "[fd00:172:18::b]"} {
		urls := []string{fmt.Sprintf("http://%s:10256/healthz", node), fmt.Sprintf("http://%s:10256/livez", node)}
		for number := range many {
			urls = append(urls, fmt.Sprintf("http://%s:%d/", node, healthPort+number))
		}
		for i, url := range urls {
			var ours, theirs string
			for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(50 * time.Millisecond) {
				ours, theirs = get(p.Context(), p.labs[0], url), get(p.Context(), p.labs[1], url)
				if ours == theirs || time.Now().After(deadline) {
					break
				}
			}
			if ours != theirs {
				about := p.random.services[slices.Index(p.random.numbers[:], i-2)]
				p.Errorf("round %d, %v: %s: ours %s; theirs %s\n%s", n, p.random.steps, url, ours, theirs, p.random.describe(about))
			}
		}
	}
}

// get returns the answer to a request of the client, without what differs from one to the next, and what only ours answers.
func get(ctx context.Context, lab *netns.Lab, url string) string {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	transport := &http.Transport{DialContext: lab.Client.Dial, DisableKeepAlives: true}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err.Error()
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return "no answer"
	}
	defer response.Body.Close()
	var body map[string]any
	err = json.NewDecoder(response.Body).Decode(&body)
	for _, name := range []string{"Date", "Content-Length"} {
		response.Header.Del(name)
	}
	for _, name := range []string{"lastUpdated", "currentTime", "healthy", "status"} {
		delete(body, name)
	}
	return fmt.Sprint(response.Status, response.Header, body, err)
}
