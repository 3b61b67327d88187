//go:build linux

package restart

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"
)

// upstream is what Kubernetes' kube-proxy writes for a Service with one endpoint, by mode.
var upstream = map[string]string{
	iptables: `*nat
:KUBE-SERVICES - [0:0]
:KUBE-SVC-AAAAAAAAAAAAAAAA - [0:0]
:KUBE-SEP-BBBBBBBBBBBBBBBB - [0:0]
-A KUBE-SERVICES -d 10.96.0.200/32 -p tcp -m comment --comment "default/other cluster IP" -m tcp --dport 80 -j KUBE-SVC-AAAAAAAAAAAAAAAA
-A KUBE-SVC-AAAAAAAAAAAAAAAA -m comment --comment "default/other -> 10.244.2.2:8080" -j KUBE-SEP-BBBBBBBBBBBBBBBB
-A KUBE-SEP-BBBBBBBBBBBBBBBB -p tcp -m comment --comment default/other -m tcp -j DNAT --to-destination 10.244.2.2:8080
COMMIT
`,
	nftables: `add table ip kube-proxy
add chain ip kube-proxy service-ABCDEFGH-default/other/tcp/http
add rule ip kube-proxy service-ABCDEFGH-default/other/tcp/http meta l4proto tcp dnat to 10.244.2.2:8080
`,
}

// removal removes what upstream writes in a mode. This proxy may have removed it already.
var removal = map[string]string{
	iptables: `*nat
:KUBE-SERVICES - [0:0]
:KUBE-SVC-AAAAAAAAAAAAAAAA - [0:0]
:KUBE-SEP-BBBBBBBBBBBBBBBB - [0:0]
-X KUBE-SERVICES
-X KUBE-SVC-AAAAAAAAAAAAAAAA
-X KUBE-SEP-BBBBBBBBBBBBBBBB
COMMIT
`,
	nftables: "add table ip kube-proxy; delete table ip kube-proxy",
}

// recognised is the start of the log line that reports another proxy that takes no lock.
const recognised = "Another kube-proxy, which takes no lock"

// TestKernelRival has a proxy that takes no lock write its rules, in each mode, beside one of each mode: it is recognised.
// What others write is not taken for a proxy.
func TestKernelRival(t *testing.T) {
	t.Parallel()
	for _, own := range []string{nftables, iptables} {
		for _, other := range []string{nftables, iptables} {
			t.Run(own+"-"+other, func(t *testing.T) {
				t.Parallel()
				r, probes := newTrial(t)
				n := newNode(t, r.lab.Node1.Host, "nft")
				_, log := r.another(own)
				r.serves(probes)
				if absent := map[string]string{nftables: iptables, iptables: nftables}[own]; !n.onlyIn(own, absent) {
					t.Fatal("the proxy does not serve")
				}
				// A modification by an administrator is repaired, and not reported as another proxy.
				n.must("nft", map[string]string{nftables: "flush table ip kube-proxy", iptables: "flush chain ip nat KUBE-SERVICES"}[own])
				r.shows(`serviceproxy_rules_repaired_total{ip_family="IPv4"} 1`)
				if strings.Contains(log.String(), recognised) || r.otherSeen(other) {
					t.Fatalf("before another proxy wrote:\n%s", log)
				}
				wait := func() {
					for end := time.Now().Add(7 * time.Second); time.Now().Before(end) && !strings.Contains(log.String(), recognised); {
						time.Sleep(20 * time.Millisecond)
					}
				}
				// Rules of another mode are known to be new once the proxy has seen that there are none.
				for deadline := time.Now().Add(time.Minute); !strings.Contains(log.String(), recognised) && time.Now().Before(deadline); {
					if other == iptables {
						n.restore("iptables-nft", upstream[other])
					} else {
						n.must("nft", upstream[other])
					}
					wait()
					if own != other && !strings.Contains(log.String(), recognised) {
						if other == iptables {
							n.restore("iptables-nft", removal[other])
						} else {
							n.must("nft", removal[other])
						}
						wait()
					}
				}
				log.says(t, recognised, `mode="`+other+`"`)
				for deadline := time.Now().Add(time.Minute); !r.otherSeen(other); time.Sleep(20 * time.Millisecond) {
					if time.Now().After(deadline) {
						t.Error("the metric does not show it")
						break
					}
				}
				if t.Failed() {
					t.Log(log)
				}
			})
		}
	}
}

// otherSeen reports whether the metrics say that another proxy of a mode was seen.
func (r *trial) otherSeen(mode string) bool {
	_, body := r.page("127.0.0.1:10249", "/metrics")
	for line := range strings.Lines(body) {
		if value, ok := strings.CutPrefix(line, fmt.Sprintf(`serviceproxy_other_proxy_last_seen_timestamp_seconds{mode=%q} `, mode)); ok {
			at, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			return err == nil && at > 0
		}
	}
	return false
}
