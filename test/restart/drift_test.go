//go:build linux

package restart

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/seed-11a05479/kube-proxy/test/clusters"
	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// damages are what other programs do to the rules in nftables mode, as commands of nft.
var damages = map[string]string{
	"flush ruleset":      `flush ruleset`,
	"table deleted":      `delete table ip kube-proxy`,
	"both tables":        `delete table ip kube-proxy; delete table ip6 kube-proxy`,
	"chain flushed":      `flush chain ip kube-proxy nat-prerouting`,
	"table dormant":      `add table ip kube-proxy { flags dormant; }`,
	"policy changed":     `add chain ip kube-proxy filter-forward { type filter hook forward priority 0; policy drop; }`,
	"chain added":        `add chain ip kube-proxy foreign { type filter hook input priority 0; }; add rule ip kube-proxy foreign accept`,
	"rule added":         `insert rule ip6 kube-proxy nat-prerouting accept`,
	"element deleted":    `delete element ip kube-proxy endpoints { 10.96.0.10 . tcp . 80 . 0 }`,
	"element changed":    `delete element ip kube-proxy endpoints { 10.96.0.10 . tcp . 80 . 0 }; add element ip kube-proxy endpoints { 10.96.0.10 . tcp . 80 . 0 : 192.0.2.1 . 80 }`,
	"element added":      `add element ip kube-proxy endpoints { 192.0.2.9 . tcp . 80 . 0 : 192.0.2.1 . 80 }`,
	"map of Services":    `flush map ip6 kube-proxy services`,
	"firewalld restarts": `add table inet firewalld; delete table inet firewalld; add table inet firewalld; add chain inet firewalld filter_INPUT { type filter hook input priority 10; }`,
}

// flushed are what other programs do to the rules in iptables mode, as input of iptables-restore --noflush in both families.
// firewalld does the last one with its backend for iptables.
var flushed = map[string]string{
	"-F in nat":          "*nat\n-F\nCOMMIT\n",
	"-F in filter":       "*filter\n-F\nCOMMIT\n",
	"-F in mangle":       "*mangle\n-F\nCOMMIT\n",
	"-F and -X in nat":   "*nat\n-F\n-X\nCOMMIT\n",
	"-F in KUBE-MARK":    "*nat\n-F KUBE-MARK-MASQ\nCOMMIT\n",
	"jump deleted":       "*nat\n-D PREROUTING 1\nCOMMIT\n",
	"rule added":         "*nat\n-I KUBE-SERVICES -j ACCEPT\nCOMMIT\n",
	"firewalld restarts": "*mangle\n-F\n-X\n-Z\nCOMMIT\n*nat\n-F\n-X\n-Z\nCOMMIT\n*filter\n-F\n-X\n-Z\nCOMMIT\n",
}

// many writes so many Services with five endpoints each.
func (r *trial) many(services int) {
	r.t.Helper()
	var b strings.Builder
	for n := range services {
		on := "node1" // the first hundred endpoints: a node has some 110 pods
		if n >= 20 {
			on = "node2"
		}
		fmt.Fprintf(&b, `apiVersion: v1
kind: Service
metadata: {name: many-%[1]d, namespace: default}
spec: {clusterIPs: [%[2]s], ports: [{port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: many-%[1]d, namespace: default, labels: {kubernetes.io/service-name: many-%[1]d}}
addressType: IPv4
ports: [{port: 8080}]
endpoints:
`, n, clusters.AddrAt(10<<24|97<<16, n))
		for i := range 5 {
			fmt.Fprintf(&b, "- {addresses: [%s], nodeName: %s}\n", clusters.AddrAt(10<<24|128<<16, 5*n+i), on)
		}
		b.WriteString("---\n")
	}
	if err := os.WriteFile(filepath.Join(r.dir, "many.yaml"), []byte(b.String()), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

// TestKernelDrift damages the rules of 200 Services, or of the number in the variable SERVICES, in all ways that other
// programs have: they are repaired. The proxy is started again before each damage, because it delays repairs of damages that follow
// each other (TestKernelFight).
func TestKernelDrift(t *testing.T) {
	t.Parallel()
	services := 200
	if text := os.Getenv("SERVICES"); text != "" {
		var err error
		if services, err = strconv.Atoi(text); err != nil {
			t.Fatalf("SERVICES=%s: %v", text, err)
		}
	}
	for _, of := range []string{nftables, iptables, legacy} {
		t.Run(of, func(t *testing.T) {
			t.Parallel()
			r, probes := newTrial(t)
			r.dual = true
			r.write(0, r.pods)
			r.many(services)
			n := newNode(t, r.lab.Node1.Host, map[string]string{nftables: "nft", iptables: "nft", legacy: "legacy"}[of])
			mode, _, _ := strings.Cut(of, " ")
			r.start(mode)
			r.serves(probes)
			before := r.settled(of, services)
			if mode == nftables {
				for name, text := range damages {
					r.again(mode)
					r.repairs(of, name, before, func() { n.must("nft", text) })
				}
			} else {
				for name, text := range flushed {
					r.again(mode)
					r.repairs(of, name, before, func() {
						n.restore("iptables-"+n.variant, text)
						n.restore("ip6tables-"+n.variant, text)
					})
				}
			}
			if t.Failed() {
				t.Log(r.log.String())
			}
		})
	}
}

// again starts another process instead of the present one, and waits for its first syncs.
func (r *trial) again(mode string) {
	r.t.Helper()
	if err := r.proxy.Kill(); err != nil {
		r.t.Fatal(err)
	}
	began := time.Now()
	r.start(mode)
	for _, family := range netns.Families() {
		for r.syncedAt(family).Before(began) {
			if time.Since(began) > time.Minute {
				r.t.Fatalf("the proxy does not sync again:\n%s", r.log.String())
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
}

// settled waits until all Services are programmed, and returns the rules.
func (r *trial) settled(of string, services int) (rules string) {
	r.t.Helper()
	last := clusters.AddrAt(10<<24|97<<16, services-1).String()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		now := ownRules(r.lab.Node1.Host, of)
		if strings.Contains(now, last) && now == rules {
			return rules
		}
		rules = now
	}
	r.t.Fatalf("not all Services are programmed:\n%s", r.log.String())
	return ""
}

// ownRules are kube-proxy's rules without those of other programs, which the damages remove and nothing restores.
func ownRules(host *netns.Host, of string) string {
	var own []string
	for line := range strings.Lines(rulesOf(host, of)) {
		foreign := strings.Contains(line, "KUBE-FIREWALL") || strings.Contains(line, "KUBELET") || strings.Contains(line, "AUDIT") ||
			strings.Contains(line, "CNI-") || strings.Contains(line, "198.51.100") || strings.Contains(line, "2001:db8") || strings.Contains(line, "-HINT")
		if !foreign {
			own = append(own, strings.TrimSpace(line))
		}
	}
	return strings.Join(own, "\n")
}

// repairs damages the rules, waits until they are as before, and logs how long the repair took: until the end of the sync.
func (r *trial) repairs(of, name, before string, damage func()) {
	r.t.Helper()
	damage()
	at := time.Now()
	if now := ownRules(r.lab.Node1.Host, of); now == before && r.synced(at) == 0 {
		r.t.Logf("%s: %s: nothing of kube-proxy's, or repaired while the command still ran", of, name)
		return
	}
	for listed, took := "", time.Duration(0); ; time.Sleep(20 * time.Millisecond) { // listing takes long: only after a sync
		if last := r.synced(at); last > took {
			took, listed = last, ownRules(r.lab.Node1.Host, of)
			if listed == before {
				r.t.Logf("%s: %s: repaired after %v", of, name, took.Round(time.Millisecond))
				return
			}
		}
		if time.Since(at) > time.Minute {
			r.t.Errorf("%s is not repaired:\n%s", name, strings.Join(clusters.ChangedLines(before, listed), "\n"))
			return
		}
	}
}

// synced returns how long after a time the last sync succeeded; 0 if it was before.
func (r *trial) synced(at time.Time) (took time.Duration) {
	for _, family := range netns.Families() {
		if synced := r.syncedAt(family); synced.After(at) {
			took = max(took, synced.Sub(at))
		}
	}
	return took
}

// syncedAt is when the last sync of a family succeeded, according to the metrics.
func (r *trial) syncedAt(family netns.Family) time.Time {
	_, body := r.page("127.0.0.1:10249", "/metrics")
	for line := range strings.Lines(body) {
		text, ok := strings.CutPrefix(line, fmt.Sprintf("kubeproxy_sync_proxy_rules_last_timestamp_seconds{ip_family=%q} ", family))
		if seconds, err := strconv.ParseFloat(strings.TrimSpace(text), 64); ok && err == nil {
			return time.UnixMicro(int64(seconds * 1e6))
		}
	}
	return time.Time{}
}
