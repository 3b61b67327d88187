//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/config"
	"github.com/seed-11a05479/kube-proxy/test/kubeproxy"
)

// serviceCIDR is the range of the lab's cluster IPs in both families.
const serviceCIDR = `apiVersion: networking.k8s.io/v1
kind: ServiceCIDR
metadata: {name: kubernetes}
spec: {cidrs: [10.96.0.0/16, "fd00:10:96::/112"]}
`

// breakage is something that breaks Services, in words of a shell.
type breakage struct {
	name, breaks, heals string
	// named are parts of what /healthz says then.
	named []string
	// mode is the only mode in which it is tried; "" is both.
	mode config.ProxyMode
}

// breakages break both families. The canary's connections go to port 10256.
func breakages() []breakage {
	firewall := func(chain, rule string) string {
		return "nft 'add table inet theirs; add chain inet theirs bad { " + chain + " }; add rule inet theirs bad " + rule + "'"
	}
	const noFirewall = "nft delete table inet theirs"
	loop := func(command string) string {
		return fmt.Sprintf("rm -f $DIR/stop; (while [ ! -e $DIR/stop ]; do %s || true; sleep 0.02; done) >/dev/null 2>&1 &", command)
	}
	return []breakage{
		{name: "forwarding is off", breaks: "sysctl -w net.ipv4.ip_forward=0 net.ipv6.conf.all.forwarding=0",
			heals: "sysctl -w net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1",
			named: []string{"net.ipv4.ip_forward is 0", "net.ipv6.conf.all.forwarding is 0"}},
		{name: "a firewall drops its packets", heals: noFirewall,
			breaks: firewall("type filter hook input priority 10; policy accept;", "meta l4proto tcp ct original proto-dst 10256 ct state new drop"),
			named: []string{"IPv4 connections through kube-proxy's rules fail (10.96.0.0:10256: no answer): its first packet was dropped by table inet theirs, chain bad, which is not kube-proxy's",
				"IPv6 connections through kube-proxy's rules fail ([fd00:10:96::]:10256: no answer): its first packet was dropped by table inet theirs, chain bad"}},
		{name: "a firewall rejects its packets", heals: noFirewall,
			breaks: firewall("type filter hook output priority 10; policy accept;", "meta l4proto tcp ct original proto-dst 10256 ct state new reject with icmpx admin-prohibited"),
			named:  []string{"IPv4 connections", "its first packet was rejected by table inet theirs, chain bad", "IPv6 connections"}},
		{name: "a firewall drops the answers", heals: noFirewall,
			breaks: firewall("type filter hook output priority 10; policy accept;", "meta l4proto tcp ct direction reply ct original proto-dst 10256 drop"),
			named:  []string{"IPv4 connections", "delivered to this node, at 127.0.0.1:", "but no answer came back", "IPv6 connections"}},
		{name: "a firewall forwards nothing", heals: noFirewall,
			breaks: "nft 'add table inet theirs; add chain inet theirs bad { type filter hook forward priority 0; policy drop; }'",
			named:  []string{"chain inet theirs bad drops everything"}},
		{name: "a hook before ours translates", heals: noFirewall,
			breaks: firewall("type nat hook output priority -150; policy accept;", "tcp dport 10256 redirect to :9"),
			named:  []string{"IPv4 connections", "which is not the endpoint 127.0.0.1:", "rules of other programs that it matched: table inet theirs, chain bad", "IPv6 connections"}},
		{name: "a hook before ours prevents tracking", heals: noFirewall,
			breaks: firewall("type filter hook output priority -300; policy accept;", "tcp dport 10256 notrack"),
			named:  []string{"IPv4 connections", "its destination was not translated", "rules of other programs that it matched: table inet theirs, chain bad", "IPv6 connections"}},
		{name: "the rules are deleted all the time", heals: "touch $DIR/stop", mode: config.ProxyModeNFTables,
			breaks: loop("nft delete table ip kube-proxy || true; nft delete table ip6 kube-proxy"),
			named:  []string{"IPv4 connections", "IPv6 connections", "there are no rules of mode nftables"}},
		{name: "the rules are deleted all the time", heals: "touch $DIR/stop", mode: config.ProxyModeIPTables,
			breaks: loop("iptables -t nat -F; ip6tables -t nat -F"),
			named:  []string{"IPv4 connections", "IPv6 connections"}},
	}
}

// TestKernelCanary breaks each thing in both modes: /healthz names it, and succeeds again when it is healed.
func TestKernelCanary(t *testing.T) {
	t.Parallel()
	for _, mode := range []config.ProxyMode{config.ProxyModeNFTables, config.ProxyModeIPTables} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			w := newTrial(t)
			kubeproxy.MustWrite(filepath.Join(w.dir, "cidr.yaml"), serviceCIDR)
			w.proxy(mode, "--dataplane-canary", "healthz", "--healthz-bind-address", "127.0.0.1:10299")
			w.broken(nil)
			w.hidden()
			w.private()
			for _, b := range breakages() {
				if b.mode != "" && b.mode != mode {
					continue
				}
				w.shell(b.breaks)
				began := time.Now()
				w.broken(b.named)
				w.Logf("%s: named after %s", b.name, time.Since(began).Round(10*time.Millisecond))
				if b.name == "a firewall drops its packets" {
					w.shown()
				}
				w.shell(b.heals)
				w.broken(nil)
			}
			w.leavesNothing(mode)
		})
	}
}

// private checks that a pod does not reach the canary's listener, in whose mode the kernel lets packets to loopback addresses in.
func (w *trial) private() {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), time.Second)
	defer cancel()
	if conn, err := w.lab.Node1.Pods[0].Dial(ctx, "tcp", "10.96.0.0:10256"); err == nil {
		conn.Close()
		w.Error("a pod has a connection to the canary's listener")
	}
}

// shell runs a command in node1. $DIR is the directory of the manifests.
func (w *trial) shell(command string) {
	w.Helper()
	cmd := w.lab.Node1.Command("sh", "-ec", strings.ReplaceAll(command, "$DIR", w.dir))
	if out, err := cmd.CombinedOutput(); err != nil {
		w.Fatalf("%s: %v: %s", command, err, out)
	}
}

// broken waits until /healthz says all of this is broken, or until it says that nothing is.
func (w *trial) broken(named []string) {
	w.Helper()
	client := http.Client{Transport: &http.Transport{DialContext: w.lab.Node1.Dial, DisableKeepAlives: true}}
	for began := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		response, err := client.Get("http://127.0.0.1:10299/healthz")
		if err != nil {
			w.Fatal(err)
		}
		var answer struct{ Broken []string }
		if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
			w.Fatal(err)
		}
		response.Body.Close()
		missing := ""
		for _, part := range named {
			if !strings.Contains(strings.Join(answer.Broken, "\n"), part) {
				missing = part
			}
		}
		switch tried := w.metric(`serviceproxy_dataplane_broken{check="IPv6"}`) != ""; {
		case named == nil && response.StatusCode == http.StatusOK && tried, named != nil && missing == "" && response.StatusCode == http.StatusServiceUnavailable:
			return
		case time.Since(began) > patience:
			w.Fatalf("/healthz answers %d, and %q is broken, want %q", response.StatusCode, answer.Broken, named)
		}
	}
}

// hidden checks that the canary is not among the Services, and that the rules are as they should be.
func (w *trial) hidden() {
	w.Helper()
	out, err := w.lab.Node1.Command(w.program, "service", "list", "-A", "-o", "json").CombinedOutput()
	if text := string(out); err != nil || strings.Contains(text, "kube-proxy/CANARY") || strings.Contains(text, `10.96.0.0"`) {
		w.Errorf("service list: %v: %s", err, out)
	}
	w.prints(0, []string{"no connection is open"}, "drain", "--timeout", "0")
	w.prints(0, []string{"The kernel has the rules"}, "render", "--diff")
	w.prints(0, []string{"is the canary", "127.0.0.1:"}, "explain", "10.96.0.0:10256")
	w.prints(0, []string{"The proxy has repaired nothing"}, "drift")
}

// shown checks where it is shown that something is broken, apart from /healthz.
func (w *trial) shown() {
	w.Helper()
	for check, want := range map[string]string{"IPv4": "1", "IPv6": "1", "settings": "0", "firewall": "0"} {
		if got := w.metric(fmt.Sprintf("serviceproxy_dataplane_broken{check=%q}", check)); got != want {
			w.Errorf("the metric of %s is %q, want %s", check, got, want)
		}
	}
	w.prints(0, []string{"DataplaneBroken", "dropped by table inet theirs"}, "service", "list", "-A")
	w.prints(1, []string{"dropped by table inet theirs"}, "check")
	client := http.Client{Transport: &http.Transport{DialContext: w.lab.Node1.Dial, DisableKeepAlives: true}}
	response, err := client.Get("http://127.0.0.1:10299/livez")
	if err != nil {
		w.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusOK {
		w.Errorf("/livez answers %d: a restart would not help", response.StatusCode)
	}
}

// leavesNothing runs the proxy without the canary, whose rules and connections are gone then.
func (w *trial) leavesNothing(mode config.ProxyMode) {
	w.Helper()
	rules := func() string {
		out, err := w.lab.Node1.Command("sh", "-c", "nft list ruleset; iptables-save; ip6tables-save").CombinedOutput()
		if err != nil {
			w.Fatalf("%v: %s", err, out)
		}
		return string(out)
	}
	const element, rule = "10.96.0.0 . tcp . 10256", "10.96.0.0/32"
	if text := rules(); !strings.Contains(text, element) && !strings.Contains(text, rule) {
		w.Errorf("the canary has no rules:\n%s", text)
	}
	if err := w.running.Kill(); err != nil {
		w.Fatal(err)
	}
	w.proxy(mode)
	if text := rules(); strings.Contains(text, "10256") || strings.Contains(text, "kube-proxy/CANARY") || strings.Contains(text, "kube-proxy-trace") {
		w.Errorf("without --dataplane-canary the rules are:\n%s", text)
	}
}
