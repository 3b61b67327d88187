//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-11a05479/kube-proxy/cmd/kube-proxy/app"
	"github.com/seed-11a05479/kube-proxy/pkg/apis/config"
	"github.com/seed-11a05479/kube-proxy/pkg/check"
	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// checking is a trial that remembers every line that was not ok.
type checking struct {
	*trial
	seen map[string]bool
	// foreign writes rules of another mode before each check: the proxy removes those that it finds in its first minute.
	foreign []string
}

// check runs "kube-proxy check" in node1 and returns its exit code and the lines that are not ok, as "status group/check".
func (w *checking) check(mode config.ProxyMode, flags ...string) (code int, lines []string, results []check.Result) {
	w.Helper()
	cmd := w.lab.Node1.Command(w.program, append([]string{"check", "--proxy-mode", string(mode), "--skip", "api", "-o", "json"}, flags...)...)
	out, err := cmd.Output()
	var report struct{ Checks []check.Result }
	if failed := json.Unmarshal(out, &report); failed != nil {
		w.Fatalf("check: %v, %v:\n%s", err, failed, out)
	}
	for _, r := range report.Checks {
		if r.Status != check.OK {
			w.seen[fmt.Sprintf("%s %s/%s %s", r.Status, r.Group, r.Check, r.Message)] = true
			lines = append(lines, fmt.Sprintf("%s %s/%s", r.Status, r.Group, r.Check))
		}
	}
	return cmd.ProcessState.ExitCode(), lines, report.Checks
}

// expect runs the checks and compares the lines that are not ok.
func (w *checking) expect(mode config.ProxyMode, flags []string, code int, want ...string) {
	w.Helper()
	for began := time.Now(); ; {
		if w.foreign != nil {
			w.onNode("", w.foreign...)
		}
		got, lines, results := w.check(mode, flags...)
		if got == code && slices.Equal(lines, want) {
			return
		}
		if w.foreign != nil && time.Since(began) < patience {
			continue
		}
		w.Errorf("%s mode, check %v: exit code %d, want %d; not ok are\n%q, want\n%q\n%+v", mode, flags, got, code, lines, want, results)
		return
	}
}

// onNode runs a program in node1.
func (w *checking) onNode(stdin string, args ...string) string {
	w.Helper()
	cmd := w.lab.Node1.Command(args[0], args[1:]...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		w.Fatalf("%v: %v: %s", args, err, out)
	}
	return string(out)
}

func (w *checking) forwarding(value string) {
	w.Helper()
	for _, name := range []string{"ipv4/ip_forward", "ipv6/conf/all/forwarding"} {
		if err := w.lab.Node1.SetSysctl(name, value); err != nil {
			w.Fatal(err)
		}
	}
}

// guard is a firewall that drops everything that it does not know, and what removes it.
const guard = "table inet guard {\n chain forward { type filter hook forward priority 10; policy drop; ip saddr 192.0.2.99 accept; }\n}\n"

// TestKernelCheckBefore checks a node before the switch: one that is right, and one where everything is wrong. The checks
// leave no rules behind.
func TestKernelCheckBefore(t *testing.T) {
	t.Parallel()
	w := &checking{newTrial(t), map[string]bool{}, nil}
	for _, mode := range []config.ProxyMode{config.ProxyModeNFTables, config.ProxyModeIPTables} {
		w.expect(mode, []string{"--pre"}, 0)
	}
	if rules := w.onNode("", "nft", "list", "ruleset"); rules != "" {
		t.Errorf("the checks left rules behind:\n%s", rules)
	}
	without := w.lab.Node1.Command("setpriv", "--bounding-set=-net_admin", "--inh-caps=-net_admin", w.program, "check", "--pre", "--skip", "api", "--proxy-mode", "nftables")
	out, _ := without.Output() // the exit code is that of a failed check
	if text := string(out); without.ProcessState.ExitCode() != app.ExitFailure || strings.Count(text, "kernel/rules") != 1 || !strings.Contains(text, "CAP_NET_ADMIN is missing: without it no rule can be written") || strings.Contains(text, "?") {
		t.Errorf("without CAP_NET_ADMIN: exit code %d\n%s", without.ProcessState.ExitCode(), text)
	}
	w.forwarding("0")
	w.onNode(guard, "nft", "-f", "-")
	w.serve(w.lab.Node1.Host, netns.TCP, 10249)
	if err := w.lab.Node1.SetSysctl("ipv4/conf/all/rp_filter", "1"); err != nil {
		t.Fatal(err)
	}
	wrong := []string{"fail settings/forwarding", "fail settings/forwarding", "warn settings/rp_filter", "warn firewall/forward", "fail ports/servers"}
	for _, mode := range []config.ProxyMode{config.ProxyModeNFTables, config.ProxyModeIPTables} {
		w.expect(mode, []string{"--pre"}, app.ExitFailure, wrong...)
	}
}

// TestKernelCheckAfter checks a node while the proxy runs, in both modes.
//
// "After a switch to nftables something is still served as before": rules of the other mode are named.
//
// "Connections work from a node to its own pods only": a connection to a Service works, and stops when a firewall drops what is
// forwarded, or when the node does not forward packets. The checks name either.
//
// docs/troubleshooting.md shows what the checks say; every line in it that is not ok was seen here.
func TestKernelCheckAfter(t *testing.T) {
	t.Parallel()
	netns.Require(t)
	seen := map[string]bool{}
	for _, test := range []struct {
		mode, other config.ProxyMode
		foreign     []string // writes what is a rule of the other mode
		notServing  []string
	}{
		{config.ProxyModeNFTables, config.ProxyModeIPTables, []string{"sh", "-c", "iptables -w -t nat -N KUBE-SERVICES || iptables -w -t nat -L KUBE-SERVICES"}, nil},
		{config.ProxyModeIPTables, config.ProxyModeNFTables, []string{"nft", "add table ip kube-proxy"}, []string{"fail settings/route_localnet"}},
	} {
		t.Run(string(test.mode), func(t *testing.T) {
			w := &checking{newTrial(t), seen, nil}
			w.expect(test.mode, nil, app.ExitFailure, append(test.notServing, "fail proxies/lock", "fail proxy/health", "warn proxy/mode", "fail proxy/rules")...)
			w.proxy(test.mode)
			w.expect(test.mode, []string{"--wait", patience.String()}, 0)
			if _, lines, _ := w.check(test.other); !slices.Contains(lines, "fail proxy/mode") || !slices.Contains(lines, "fail proxy/rules") {
				t.Errorf("checked for mode %s: %q", test.other, lines)
			}
			w.expect(test.mode, []string{"--pre"}, 0, "warn proxies/lock", "warn proxies/processes", "warn ports/servers", "warn ports/servers")

			w.foreign = test.foreign
			w.expect(test.mode, nil, 0, "warn proxies/modes")
			w.expect(test.mode, []string{"--strict"}, app.ExitFailure, "warn proxies/modes")

			service := netns.Probe{From: w.lab.Client, To: netip.AddrPortFrom(w.lab.Node1.IPv4, 30080)}
			w.until(service, netns.Answered, w.endpoint().Name)
			w.onNode(guard, "nft", "-f", "-")
			w.until(service, netns.Dropped, "")
			w.expect(test.mode, nil, 0, "warn firewall/forward", "warn proxies/modes")
			w.onNode("", "nft", "flush chain inet guard forward")
			w.expect(test.mode, nil, app.ExitFailure, "fail firewall/forward", "warn proxies/modes")
			w.onNode("", "nft", "delete table inet guard")
			w.until(service, netns.Answered, w.endpoint().Name)
			w.forwarding("0")
			w.until(service, netns.Dropped, "")
			w.expect(test.mode, nil, app.ExitFailure, "fail settings/forwarding", "fail settings/forwarding", "warn proxies/modes")
		})
	}
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "troubleshooting.md"))
	if err != nil {
		t.Fatal(err)
	}
	shown := 0
	for line := range strings.Lines(string(page)) {
		if text := strings.Join(strings.Fields(line), " "); strings.HasPrefix(text, "fail ") || strings.HasPrefix(text, "warn ") {
			if shown++; !seen[text] {
				t.Errorf("docs/troubleshooting.md shows a line that the checks did not print: %s", text)
			}
		}
	}
	if shown == 0 {
		t.Error("docs/troubleshooting.md shows no line")
	}
}
