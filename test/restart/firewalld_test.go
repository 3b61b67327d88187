//go:build linux

package restart

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/seed-11a05479/kube-proxy/test/clusters"
	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// firewalld is the real program in a node, with a message bus and a configuration of its own.
type firewalld struct {
	*trial
	n    *node
	dir  string
	args []string // of firewalld
	env  []string
	cmd  *netns.Cmd
	log  netns.Log
	// own are firewalld's rules, before those of kube-proxy in a mode.
	own, before, mode string
}

const busConfiguration = `<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-BUS Bus Configuration 1.0//EN" "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <type>system</type>
  <listen>unix:path=%s</listen>
  <auth>EXTERNAL</auth>
  <policy context="default"><allow own="*"/><allow send_destination="*"/><allow receive_sender="*"/></policy>
</busconfig>
`

// firewalld starts a message bus, and returns firewalld with a backend, "nftables" or "iptables". It skips the test, in CI too,
// if firewalld is not installed: Debian's package starts it for the whole machine.
func (r *trial) firewalld(backend string) *firewalld {
	r.t.Helper()
	for _, program := range []string{"firewalld", "firewall-cmd", "dbus-daemon"} {
		if _, err := exec.LookPath(program); err != nil {
			r.t.Skipf("skipped: %s is not installed: %v", program, err)
		}
	}
	f := &firewalld{trial: r, dir: r.t.TempDir(), n: &node{r.t, r.lab.Node1.Host, "nft"}}
	bus, socket := filepath.Join(f.dir, "bus.conf"), filepath.Join(f.dir, "bus")
	if err := os.WriteFile(bus, fmt.Appendf(nil, busConfiguration, socket), 0o600); err != nil {
		r.t.Fatal(err)
	}
	for _, folder := range []string{"zones", "services", "policies", "helpers", "icmptypes", "ipsets"} {
		if err := os.Mkdir(filepath.Join(f.dir, folder), 0o700); err != nil {
			r.t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(f.dir, "firewalld.conf"), []byte("FirewallBackend="+backend+"\n"), 0o600); err != nil {
		r.t.Fatal(err)
	}
	daemon := r.lab.Node1.Command("dbus-daemon", "--config-file", bus, "--nofork", "--nopidfile")
	if err := daemon.Start(); err != nil {
		r.t.Fatal(err)
	}
	f.env = append(os.Environ(), "DBUS_SYSTEM_BUS_ADDRESS=unix:path="+socket)
	f.args = []string{"--nofork", "--nopid", "--system-config", f.dir, "--log-target", "console"}
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		if _, err := os.Stat(socket); err == nil {
			return f
		} else if time.Now().After(end) {
			r.t.Fatal(err)
		}
	}
}

// up starts firewalld and waits until it has written its rules.
func (f *firewalld) up() {
	f.t.Helper()
	f.cmd = f.lab.Node1.Command("firewalld", f.args...)
	f.cmd.Env, f.cmd.Stdout, f.cmd.Stderr = f.env, &f.log, &f.log
	if err := f.cmd.Start(); err != nil {
		f.t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		out, err := f.ask("--state")
		if err == nil {
			return
		} else if time.Now().After(end) {
			f.t.Fatalf("firewalld does not run: %v: %s\n%s", err, out, f.log.String())
		}
	}
}

// ask runs firewall-cmd.
func (f *firewalld) ask(args ...string) (string, error) {
	command := f.lab.Node1.Command("firewall-cmd", args...)
	command.Env = f.env
	out, err := command.CombinedOutput()
	return string(out), err
}

// rules lists firewalld's own rules: its table, or the rules of iptables that kube-proxy did not write.
func (f *firewalld) rules() string {
	f.t.Helper()
	var kept []string
	for _, command := range []string{"nft list tables", "iptables-nft-save", "ip6tables-nft-save"} {
		words := strings.Fields(command)
		for line := range strings.Lines(transient.ReplaceAllString(f.n.must(words[0], words[1:]...), "")) {
			if strings.HasPrefix(line, "-A") && !strings.Contains(line, "KUBE-") {
				kept = append(kept, line)
			} else if strings.Contains(line, "inet firewalld") {
				kept = append(kept, f.n.must("nft", "list", "table", "inet", "firewalld"))
			}
		}
	}
	return transient.ReplaceAllString(strings.Join(kept, ""), "")
}

// TestKernelFirewalld restarts and reloads the real firewalld beside kube-proxy, with both of firewalld's backends and in both
// modes: the Services are served again, kube-proxy's rules are as before, and firewalld's are what it writes without kube-proxy.
func TestKernelFirewalld(t *testing.T) {
	for _, mode := range []string{nftables, iptables} {
		for _, backend := range []string{"nftables", "iptables"} {
			t.Run(mode+" beside "+backend, func(t *testing.T) {
				r, probes := newTrial(t)
				f := r.firewalld(backend)
				f.up()
				f.own, f.mode = f.rules(), mode
				if strings.Count(f.own, "\n") < 20 {
					t.Fatalf("firewalld's rules are\n%s\n%s", f.own, f.log.String())
				}
				r.start(mode)
				r.serves(probes)
				f.before = rulesOf(r.lab.Node1.Host, mode)
				for _, event := range []struct {
					name string
					do   func()
				}{
					{"reload", func() { f.must("--reload") }},
					{"complete reload", func() { f.must("--complete-reload") }},
					{"restart", func() {
						terminate(t, f.cmd)
						f.up()
					}},
				} {
					f.after(event.name, event.do, probes)
				}
				if t.Failed() {
					t.Logf("%s\n%s", r.log.String(), f.log.String())
				}
			})
		}
	}
}

// must runs firewall-cmd, which must succeed. If firewalld is too busy to answer in the 25 s that the message bus allows, it has
// finished once it answers again.
func (f *firewalld) must(args ...string) {
	f.t.Helper()
	out, err := f.ask(args...)
	if err != nil && strings.Contains(out, "Did not receive a reply") {
		for end := time.Now().Add(time.Minute); err != nil && time.Now().Before(end); {
			_, err = f.ask("--state")
		}
	}
	if err != nil {
		f.t.Fatalf("firewall-cmd %s: %v: %s", args, err, out)
	}
}

// after lets firewalld do something while connections are made, and checks the rules afterwards. It logs the longest time
// without an answer from the Service, and from a pod without a Service: firewalld drops packets while it writes its rules.
func (f *firewalld) after(name string, do func(), probes []netns.Probe) {
	f.t.Helper()
	through, direct := probes[0], probes[0]
	through.From, direct.From = f.lab.Node1.Host, f.lab.Node1.Host
	direct.To = netip.AddrPortFrom(f.lab.Node1.Pods[0].Addr(netns.IPv4), 8080)
	service, pod := through.Stream(f.t.Context(), 100), direct.Stream(f.t.Context(), 100)
	began := time.Now()
	do()
	took, now := time.Since(began), ""
	for end := time.Now().Add(time.Minute); time.Now().Before(end) && now != f.before; time.Sleep(20 * time.Millisecond) {
		now = rulesOf(f.lab.Node1.Host, f.mode)
	}
	if now != f.before {
		f.t.Errorf("%s: kube-proxy's rules differ:\n%s", name, strings.Join(clusters.ChangedLines(f.before, now), "\n"))
	}
	f.serves(probes)
	f.t.Logf("%s: %s took %v; without an answer: the Service for %v, a pod for %v", f.t.Name(), name, took.Round(time.Millisecond),
		service.Stop().LongestGap.Round(time.Millisecond), pod.Stop().LongestGap.Round(time.Millisecond))
	if is := f.rules(); is != f.own {
		f.t.Errorf("%s: firewalld's rules differ:\n%s", name, strings.Join(clusters.ChangedLines(f.own, is), "\n"))
	}
}
