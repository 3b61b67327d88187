//go:build linux

package restart

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/test/clusters"
	"github.com/seed-11a05479/kube-proxy/test/debian"
	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// firewalld is the real program in a node, with a message bus, a configuration and a file system of its own.
type firewalld struct {
	*trial
	n    *node
	root string   // holds Debian's packages
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

// firewalld starts a message bus, and returns firewalld from root with a backend, "nftables" or "iptables". The programs are
// not installed, because Debian's package would start firewalld for the whole machine.
func (r *trial) firewalld(root, backend string) *firewalld {
	r.t.Helper()
	f := &firewalld{trial: r, root: root, n: &node{r.t, r.lab.Node1.Host, "nft"}}
	temporary, err := os.MkdirTemp(filepath.Join(f.root, "tmp"), backend)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { os.RemoveAll(temporary) })
	for _, folder := range []string{"zones", "services", "policies", "helpers", "icmptypes", "ipsets"} {
		if err := os.Mkdir(filepath.Join(temporary, folder), 0o700); err != nil {
			r.t.Fatal(err)
		}
	}
	socket, dir := filepath.Join(temporary, "bus"), strings.TrimPrefix(temporary, f.root)
	for name, content := range map[string]string{
		"bus.conf":       fmt.Sprintf(busConfiguration, dir+"/bus"),
		"firewalld.conf": "FirewallBackend=" + backend + "\n",
	} {
		if err := os.WriteFile(filepath.Join(temporary, name), []byte(content), 0o600); err != nil {
			r.t.Fatal(err)
		}
	}
	f.env = append(os.Environ(), "DBUS_SYSTEM_BUS_ADDRESS=unix:path="+dir+"/bus")
	f.args = []string{"--nofork", "--nopid", "--system-config", dir, "--log-target", "console"}
	if err := f.command("dbus-daemon", "--config-file", dir+"/bus.conf", "--nofork", "--nopidfile").Start(); err != nil {
		r.t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		if _, err := os.Stat(socket); err == nil {
			return f
		} else if time.Now().After(end) {
			r.t.Fatal(err)
		}
	}
}

// firewalldRoot returns a folder with firewalld, and with what it and its message bus need to run there.
func firewalldRoot(t *testing.T) string {
	t.Helper()
	netns.Require(t, "apt-get", "dpkg-deb", "chroot")
	cache, err := filepath.Abs("../../.cache/firewalld")
	if err != nil {
		t.Fatal(err)
	}
	root, err := debian.Fetch(cache, "bookworm", "firewalld", "dbus-daemon", "iptables", "nftables")
	if err != nil {
		t.Fatal(err)
	}
	for _, folder := range []string{"run", "tmp", "dev"} {
		if err := os.MkdirAll(filepath.Join(root, folder), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, content := range map[string]string{"passwd": "root:x:0:0:root:/root:/bin/sh\n", "group": "root:x:0:\n"} {
		if err := os.WriteFile(filepath.Join(root, "etc", name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for name, minor := range map[string]uint32{"null": 3, "urandom": 9} {
		err := unix.Mknod(filepath.Join(root, "dev", name), unix.S_IFCHR|0o666, int(unix.Mkdev(1, minor)))
		if err != nil && !errors.Is(err, unix.EEXIST) {
			t.Fatal(err)
		}
	}
	return root
}

// command prepares a program of firewalld's packages.
func (f *firewalld) command(name string, args ...string) *netns.Cmd {
	command := f.lab.Node1.Command("chroot", append([]string{f.root, name}, args...)...)
	command.Env = f.env
	return command
}

// collision is what iptables-nft-restore says if another program, here kube-proxy, writes while it deletes all chains. It
// retries, but with the list of chains that it made before, which may hold a chain twice.
const collision = "CHAIN_DEL failed (No such file or directory)"

// up starts firewalld and waits until it has written its rules. After a collision it is started again, as an administrator
// would; that was seen once in some 30 restarts.
func (f *firewalld) up() {
	f.t.Helper()
	for attempt := 1; ; attempt++ {
		logged := len(f.log.String())
		f.cmd = f.command("firewalld", f.args...)
		f.cmd.Stdout, f.cmd.Stderr = &f.log, &f.log
		if err := f.cmd.Start(); err != nil {
			f.t.Fatal(err)
		}
		err := f.runs()
		if err == nil {
			return
		}
		if attempt == 3 || !strings.Contains(f.log.String()[logged:], collision) {
			f.t.Fatalf("%v\n%s\n%s", err, f.log.String(), f.trial.log.String())
		}
		f.t.Logf("%v, because it deleted chains while kube-proxy wrote", err)
		terminate(f.t, f.cmd)
	}
}

// runs waits until firewalld says that it runs, or that it has failed.
func (f *firewalld) runs() error {
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		out, err := f.ask("--state")
		if err == nil {
			return nil
		} else if strings.Contains(out, "failed") || time.Now().After(end) {
			return fmt.Errorf("firewalld does not run: %w: %s", err, out)
		}
	}
}

// ask runs firewall-cmd.
func (f *firewalld) ask(args ...string) (string, error) {
	out, err := f.command("firewall-cmd", args...).CombinedOutput()
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
	t.Parallel()
	root := firewalldRoot(t)
	for _, mode := range []string{nftables, iptables} {
		for _, backend := range []string{"nftables", "iptables"} {
			t.Run(mode+" beside "+backend, func(t *testing.T) {
				t.Parallel()
				r, probes := newTrial(t)
				f := r.firewalld(root, backend)
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

// must runs firewall-cmd, which must succeed, if need be again after a collision. If firewalld is too busy to answer in the
// 25 s that the message bus allows, it has finished once it answers again.
func (f *firewalld) must(args ...string) {
	f.t.Helper()
	out, err := f.ask(args...)
	if err != nil && strings.Contains(out, collision) {
		f.t.Logf("firewall-cmd %s: %v, because it deleted chains while kube-proxy wrote", args, err)
		out, err = f.ask(args...)
	}
	if err != nil && strings.Contains(out, "Did not receive a reply") {
		err = f.runs()
	}
	if err != nil {
		f.t.Fatalf("firewall-cmd %s: %v: %s\n%s", args, err, out, f.trial.log.String())
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
	// In any order: it inserts RFC3964_IPv4 at a number, and kube-proxy's repaired jumps may be before it by then.
	if changed := clusters.ChangedLines(f.own, f.rules()); len(changed) > 0 {
		f.t.Errorf("%s: firewalld's rules differ:\n%s", name, strings.Join(changed, "\n"))
	}
}
