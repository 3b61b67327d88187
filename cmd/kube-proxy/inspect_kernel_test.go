//go:build linux

package main

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/netip"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/config"
	"github.com/seed-11a05479/kube-proxy/pkg/apis/status/v1alpha1"
	"github.com/seed-11a05479/kube-proxy/test/clusters"
	"github.com/seed-11a05479/kube-proxy/test/kubeproxy"
	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// inspectedServices returns the manifests of a Service with an endpoint that is not ready beside one that is, one without
// endpoints, one whose endpoint's port is closed, one whose slice misspells the port, and a slice without a Service.
func inspectedServices() string {
	const http, other = "{name: http, port: 8080}", "{addresses: [10.244.2.2], nodeName: node2}"
	web := func(name, clusterIP string) string {
		return clusters.Service("default/"+name, "clusterIP: "+clusterIP+", ports: [{name: http, port: 80}]")
	}
	return web("shop", "10.96.0.20") +
		clusters.Slice("default/shop", "shop-1", http, other, "{addresses: [10.244.2.3], nodeName: node2, conditions: {ready: false}}") +
		web("gone", "10.96.0.21") +
		web("closed", "10.96.0.22") + clusters.Slice("default/closed", "closed-1", "{name: http, port: 9999}", other) +
		web("typo", "10.96.0.23") + clusters.Slice("default/typo", "typo-1", "{name: htpp, port: 8080}", other) +
		clusters.Slice("default/stray", "stray-1", http, other)
}

// command runs the program in node1 and returns its output and exit code.
func (w *trial) command(args ...string) (output string, code int) {
	w.Helper()
	out, err := w.lab.Node1.Command(w.program, args...).CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		w.Fatalf("%v: %v\n%s", args, err, out)
	}
	if exit != nil {
		code = exit.ExitCode()
	}
	return string(out), code
}

// prints checks what a command prints, and its exit code.
func (w *trial) prints(code int, parts []string, args ...string) {
	w.Helper()
	out, got := w.command(args...)
	if got != code {
		w.Errorf("%v: exit code %d, want %d", args, got, code)
	}
	for _, part := range parts {
		if !strings.Contains(out, part) {
			w.Errorf("%v does not print %q:\n%s", args, part, out)
		}
	}
}

// service reads a Service as JSON.
func (w *trial) service(name string) (s v1alpha1.Service) {
	w.Helper()
	out, _ := w.command("service", "describe", name, "-o", "json")
	if err := json.Unmarshal([]byte(out), &s); err != nil {
		w.Fatalf("%v: %s", err, out)
	}
	if s.ConnectionsError != "" || s.Connections == nil {
		w.Fatalf("%s: no counters: %s", name, s.ConnectionsError)
	}
	return s
}

// TestKernelInspect runs the proxy in each mode, connects, and asks the commands: they count, say why an endpoint is left out,
// and explain what real connections do. It checks, too, that only this machine can ask.
func TestKernelInspect(t *testing.T) {
	t.Parallel()
	w := newTrial(t)
	kubeproxy.MustWrite(filepath.Join(w.dir, "inspected.yaml"), inspectedServices())
	w.prints(1, []string{"no kube-proxy answers at http://127.0.0.1:10249", "--server", "--manifests"}, "service", "list")
	for _, test := range []struct {
		name   string
		mode   config.ProxyMode
		legacy bool
	}{{"nftables", config.ProxyModeNFTables, false}, {"iptables", config.ProxyModeIPTables, false}, {"legacy", config.ProxyModeIPTables, true}} {
		t.Run(test.name, func(t *testing.T) {
			w := &trial{T: t, lab: w.lab, program: w.program, dir: w.dir}
			if test.legacy {
				if out, err := w.lab.Node1.Command("iptables-legacy", "-w", "-t", "mangle", "-N", "KUBE-IPTABLES-HINT").CombinedOutput(); err != nil {
					t.Fatalf("%v: %s", err, out)
				}
			}
			w.proxy(test.mode, "--metrics-bind-address", "0.0.0.0:10249")
			w.inspect(string(test.mode))
			w.rules(test.mode, test.legacy)
		})
	}
}

// inspect opens connections and runs the commands.
func (w *trial) inspect(mode string) {
	w.Helper()
	connect := func(to string, n int, want netns.Verdict) {
		w.Helper()
		probe := netns.Probe{From: w.lab.Node1.Host, To: netip.MustParseAddrPort(to), Protocol: netns.TCP}
		for range n {
			if answer := probe.Send(); answer.Verdict != want {
				w.Fatalf("%s: %s, want %s", probe, answer, want)
			}
		}
	}
	connect("10.96.0.20:80", 7, netns.Answered)
	connect("10.96.0.21:80", 2, netns.Refused)
	shop := w.service("default/shop")
	if *shop.Connections != 7 || *shop.Ports[0].Addresses[0].Connections != 7 || *shop.Ports[0].Endpoints[0].Connections != 7 {
		w.Errorf("after 7 connections: %d, endpoint %d", *shop.Connections, *shop.Ports[0].Endpoints[0].Connections)
	}
	if gone := w.service("gone"); *gone.Refused < 2 || *gone.Connections != 0 {
		w.Errorf("after 2 refused connections: %d refused, %d connections", *gone.Refused, *gone.Connections)
	}
	w.prints(0, []string{"CONNS", "Cluster/Cluster", " 7 ", "NoEndpoints", "NoSuchPort", "EndpointSlice default/stray-1"}, "service", "list", "-A", "-o", "wide")
	w.prints(0, []string{"default     shop"}, "service", "list", "--address", "10.244.2.3")
	w.prints(0, []string{"10.244.2.3:8080", "no: not ready (slice shop-1)", "Connections:      7;"}, "service", "describe", "default/shop")
	w.prints(0, []string{"EndpointSlice default/typo-1 has no port http/TCP; it has htpp/TCP"}, "service", "describe", "typo")
	w.prints(1, []string{"Service default/shpo is not served", "did you mean default/shop?"}, "service", "describe", "shpo")
	w.prints(1, []string{"Service default/stray is not served", "EndpointSlice default/stray-1 belongs to it"}, "service", "describe", "stray")
	w.prints(0, []string{"cluster IP of default/shop:http", "Tried 12: 12 connected", "10.244.2.2:8080 got 12", "This is what was explained."},
		"explain", "--to", "default/shop", "--try", "12")
	w.prints(3, []string{"Verdict:", "rejected: no usable endpoint", "3 refused", "This is what was explained."}, "explain", "--to", "10.96.0.21:80", "--try", "3")
	w.prints(5, []string{"2 refused", "10.244.2.2:9999 got 2; asked itself: refused", "No endpoint answers"}, "explain", "--to", "default/closed", "--try", "2")
	w.prints(4, []string{"left alone: it is not for a Service"}, "explain", "--from", "external", "--to", "192.0.2.77:80")
	w.prints(1, []string{"error: ::ffff:10.96.0.20 is an IPv4-mapped IPv6 address", "ask for 10.96.0.20:80"}, "explain", "--to", "[::ffff:10.96.0.20]:80")
	w.prints(2, []string{"the destination is missing"}, "explain")
	w.prints(0, []string{`"succeeds": true`, `"connections": 1`}, "explain", "--to", "default/shop", "--try", "1", "-o", "json")
	w.guarded(mode)
}

// rules shows the rules, changes them with the mode's own tool while the proxy is stopped, and shows the difference and then
// the repair.
func (w *trial) rules(mode config.ProxyMode, legacy bool) {
	w.Helper()
	other, shown := config.ProxyModeIPTables, "table ip kube-proxy {"
	tamper := []string{"nft", "add", "rule", "ip", "kube-proxy", "nat-prerouting", "counter"}
	differs, repaired := []string{"IPv4, chain nat-prerouting\n- counter\n"}, "chain nat-prerouting was changed"
	if mode == config.ProxyModeIPTables {
		other, shown = config.ProxyModeNFTables, "*nat\n:KUBE-"
		tamper = []string{"iptables-nft", "-w", "-t", "nat", "-A", "KUBE-SERVICES", "-s", "192.0.2.9/32", "-j", "RETURN"}
		if legacy {
			tamper[0] = "iptables-legacy"
		}
		differs, repaired = []string{"IPv4, chain KUBE-SERVICES of table nat\n- -s 192.0.2.9/32 -j RETURN\n"}, "the chain KUBE-SERVICES of table nat"
	}
	w.prints(0, []string{"# IPv4\n", shown, "# IPv6\n", "10.244.2.2", "default/shop:http"}, "render")
	w.prints(0, []string{`"mode": "` + string(other) + `"`}, "render", "--mode", string(other), "-o", "json")
	w.prints(2, []string{`--mode "ebpf" is not one of`}, "render", "--mode", "ebpf")
	w.prints(0, []string{"The kernel has the rules of mode " + string(mode)}, "render", "--diff")
	w.prints(3, []string{"does not have it"}, "render", "--diff", "--mode", string(other))
	w.prints(0, []string{"The proxy has repaired nothing"}, "drift")

	offline := []string{"render", "--diff", "--mode", string(mode), "--manifests", w.dir, "--node", "node1"}
	w.stopped(func() {
		if out, err := w.lab.Node1.Command(tamper[0], tamper[1:]...).CombinedOutput(); err != nil {
			w.Fatalf("%v: %v: %s", tamper, err, out)
		}
		w.prints(3, differs, offline...)
	})
	for began := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		if out, code := w.command("drift"); code == 0 && strings.Contains(out, repaired) {
			break
		} else if time.Since(began) > patience {
			w.Fatalf("drift does not name %q:\n%s", repaired, out)
		}
	}
	for began := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		if out, code := w.command("render", "--diff"); code == 0 && strings.Contains(out, "Other programs changed, and the proxy repaired:\n") && strings.Contains(out, repaired) {
			break
		} else if time.Since(began) > patience {
			w.Fatalf("the difference stays:\n%s", out)
		}
	}
}

// stopped stops the proxy, calls do, and lets the proxy go on.
func (w *trial) stopped(do func()) {
	w.Helper()
	if err := w.running.Process.Signal(syscall.SIGSTOP); err != nil {
		w.Fatal(err)
	}
	do()
	if err := w.running.Process.Signal(syscall.SIGCONT); err != nil {
		w.Fatal(err)
	}
}

// guarded asks the API and the status page from this node and from a pod. The proxy listens on all addresses.
func (w *trial) guarded(mode string) {
	w.Helper()
	for _, test := range []struct {
		from *netns.Host
		to   string
		want int
	}{
		{w.lab.Node1.Host, "127.0.0.1:10249", http.StatusOK},
		{w.lab.Node1.Host, w.lab.Node1.IPv4.String() + ":10249", http.StatusOK},
		{w.lab.Node1.Pods[0], w.lab.Node1.IPv4.String() + ":10249", http.StatusForbidden},
		{w.lab.Node2.Host, w.lab.Node1.IPv4.String() + ":10249", http.StatusForbidden},
	} {
		for path, shown := range map[string]string{
			v1alpha1.Path + "/info": `"mode":"` + mode + `"`, "/": `<dt>Mode</dt><dd>` + mode + `</dd>`, "/services/default/shop": "10.244.2.3:8080",
		} {
			client := http.Client{Transport: &http.Transport{DialContext: test.from.Dial, DisableKeepAlives: true}}
			response, err := client.Get("http://" + test.to + path)
			if err != nil {
				w.Fatalf("%s from %s: %v", test.to, test.from.Name, err)
			}
			body, err := io.ReadAll(response.Body)
			response.Body.Close()
			if response.StatusCode != test.want || err != nil || strings.Contains(string(body), shown) != (test.want == http.StatusOK) {
				w.Errorf("%s%s from %s: %s, want %d: %s, %v", test.to, path, test.from.Name, response.Status, test.want, body, err)
			}
		}
	}
}

// TestKernelMetricsOff checks that an empty metricsBindAddress turns off the API, the status page and the metrics, which any
// process on the node could read, and that the proxy is healthy without them.
func TestKernelMetricsOff(t *testing.T) {
	t.Parallel()
	w := newTrial(t)
	path := filepath.Join(t.TempDir(), "config.conf")
	kubeproxy.MustWrite(path, kubeproxy.LatestHead+"mode: nftables\nmetricsBindAddress: \"\"\nnodeIPOverride: ["+w.lab.Node1.IPv4.String()+"]\n")
	cmd := w.lab.Node1.Command(w.program, "--manifests", w.dir, "--hostname-override", "node1", "--config", path)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cmd.Kill(); err != nil {
			t.Error(err)
		}
	})
	client := http.Client{Transport: &http.Transport{DialContext: w.lab.Node1.Dial, DisableKeepAlives: true}}
	get := func(url string) (code int, err error) {
		response, err := client.Get(url)
		if err != nil {
			return 0, err
		}
		return response.StatusCode, response.Body.Close()
	}
	for began := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		code, err := get("http://127.0.0.1:10256/healthz")
		if code == http.StatusOK {
			break
		}
		if time.Since(began) > patience {
			t.Fatalf("/healthz answers with %d, %v after %s", code, err, patience)
		}
	}
	if code, err := get("http://127.0.0.1:10249/"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("the metrics' address answers with %d, %v; want a refused connection", code, err)
	}
}
