//go:build linux

// Package releases tests what the tools of one Debian release make of the rules that those of another one wrote: the image
// brings its own nft and iptables, and the node's administrators, agents and firewalls list the rules with the node's.
package releases

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed-11a05479/kube-proxy/test/debian"
	"github.com/seed-11a05479/kube-proxy/test/kubeproxy"
	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// imageRelease is the release of the image's packages (build/image/packages.json).
const imageRelease = "bookworm"

// tool is one of the two programs that write and list rules.
type tool struct {
	mode string // the mode of kube-proxy that uses it
	// version asks for the version.
	version []string
	// listings are the commands that list all rules of kube-proxy, both families.
	listings [][]string
}

func tools() []tool {
	return []tool{
		{"nftables", []string{"nft", "--version"}, [][]string{{"nft", "list", "table", "ip", "kube-proxy"}, {"nft", "list", "table", "ip6", "kube-proxy"}}},
		{"iptables", []string{"iptables-nft", "--version"}, [][]string{{"iptables-nft-save"}, {"ip6tables-nft-save"}}},
	}
}

// What a release's tool makes of rules.
const (
	same    = "lists all"
	partial = "omits some matches"
	crash   = "crashes"
)

// TestKernelListedByOtherReleases writes rules with the tools of one release, lists them with those of another, and compares
// the result with the table in build/image/README.md, which is why the image has the tools of bookworm.
func TestKernelListedByOtherReleases(t *testing.T) {
	netns.Require(t, "apt-get", "dpkg-deb", "chroot")
	releases := []string{"bullseye", "bookworm", "trixie"}
	roots := fetch(t, releases...)
	program := kubeproxy.Path(t)
	table := "| written by \\ listed by |"
	for _, release := range releases {
		table += fmt.Sprintf(" %s: nft %s, iptables %s |", release, version(t, roots[release], tools()[0]), version(t, roots[release], tools()[1]))
	}
	table += "\n|---|" + strings.Repeat("---|", len(releases)) + "\n"
	for _, tool := range tools() {
		for _, writer := range []string{imageRelease, "trixie"} {
			table += fmt.Sprintf("| %s %s (%s) |", tool.version[0], version(t, roots[writer], tool), writer)
			lab := netns.Start(t, netns.Options{})
			serve(t, lab.Node1.Host, start{program: program, mode: tool.mode, root: roots[writer]})
			written, outcome := list(t, lab.Node1.Host, roots[writer], tool)
			if outcome != same || !strings.Contains(written, "10.244.1.2") || !strings.Contains(written, "fd00:10:244:1::2") {
				t.Fatalf("%s of %s does not list what it has written (%s): %s", tool.mode, writer, outcome, written)
			}
			for _, release := range releases {
				listed, outcome := list(t, lab.Node1.Host, roots[release], tool)
				if outcome == same {
					outcome = compare(written, listed)
				}
				table += " " + outcome + " |"
			}
			table += "\n"
		}
	}
	readme, err := os.ReadFile("../../build/image/README.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(readme), table) {
		t.Errorf("build/image/README.md does not have this table:\n%s", table)
	}
}

// fetch returns the folders with the tools of releases.
func fetch(t *testing.T, releases ...string) map[string]string {
	t.Helper()
	cache, err := filepath.Abs("../../.cache/releases")
	if err != nil {
		t.Fatal(err)
	}
	roots := map[string]string{}
	for _, release := range releases {
		if roots[release], err = debian.Fetch(filepath.Join(cache, release), release, "iptables", "nftables"); err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Join(roots[release], "run"), 0o755); err != nil { // for xtables.lock
			t.Fatal(err)
		}
	}
	return roots
}

func TestMain(m *testing.M) { kubeproxy.Main(m) }

// inside prepares a command of a release.
func inside(host *netns.Host, root string, command []string) *netns.Cmd {
	return host.Command("chroot", append([]string{root, "/usr/sbin/" + command[0]}, command[1:]...)...)
}

var number = regexp.MustCompile(`\d+(\.\d+)+`)

func version(t *testing.T, root string, tool tool) string {
	t.Helper()
	out, err := exec.Command("chroot", append([]string{root, "/usr/sbin/" + tool.version[0]}, tool.version[1:]...)...).Output()
	if err != nil {
		t.Fatalf("%s in %s: %v", tool.version, root, err)
	}
	return number.FindString(string(out))
}

// start is one run of kube-proxy, in a mode and with the tools in root.
type start struct {
	program, mode, root string
	// manifests is the folder with the objects; "" means the examples.
	manifests string
	// done reports whether the run may end; nil means that it may as soon as the objects are served.
	done func() bool
}

// patience is the time limit of the conditions.
const patience = time.Minute

// serve runs kube-proxy until it has served the examples, and returns its log. Its rules stay.
func serve(t *testing.T, host *netns.Host, s start) (logged string) {
	t.Helper()
	var log strings.Builder
	proxy := s.command(t, host)
	proxy.Stdout, proxy.Stderr = &log, &log
	if err := proxy.Start(); err != nil {
		t.Fatal(err)
	}
	healthy := wait(host)
	for deadline := time.Now().Add(patience); healthy == nil && s.done != nil && !s.done(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Errorf("not done after %v", patience)
			break
		}
	}
	err := errors.Join(proxy.Process.Signal(syscall.SIGTERM), proxy.Wait())
	if healthy != nil || err != nil {
		t.Fatalf("kube-proxy: %v, %v; its log:\n%s", healthy, err, &log)
	}
	return log.String()
}

// command prepares a run of kube-proxy. It finds the release's tools, and none of this machine's.
func (s start) command(t *testing.T, host *netns.Host, args ...string) *netns.Cmd {
	t.Helper()
	chroot, err := exec.LookPath("chroot")
	if err != nil {
		t.Fatal(err)
	}
	path, names := t.TempDir(), []string{"nft"}
	for _, stem := range []string{"iptables-nft", "ip6tables-nft", "iptables-legacy", "ip6tables-legacy"} {
		names = append(names, stem, stem+"-save", stem+"-restore")
	}
	for _, name := range names {
		script := fmt.Sprintf("#!/bin/sh\nexec %s %s /usr/sbin/%s \"$@\"\n", chroot, s.root, name)
		if err := os.WriteFile(filepath.Join(path, name), []byte(script), 0o700); err != nil { //nolint:gosec // a program
			t.Fatal(err)
		}
	}
	proxy := host.Command(s.program, append([]string{"--manifests=" + cmp.Or(s.manifests, "../../examples"), "--proxy-mode=" + s.mode, "--hostname-override=node1",
		"--cluster-cidr=10.244.0.0/16,fd00:10:244::/48", "--conntrack-max-per-core=0", "--v=2"}, args...)...)
	proxy.Env = append(os.Environ(), "PATH="+path)
	return proxy
}

// wait waits until the proxy has programmed its rules.
func wait(host *netns.Host) error {
	client := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		return host.Dial(ctx, network, address)
	}, DisableKeepAlives: true}}
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		answer, err := client.Get("http://127.0.0.1:10256/healthz")
		if err == nil {
			answer.Body.Close()
			if answer.StatusCode == http.StatusOK {
				return nil
			}
			err = errors.New(answer.Status)
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("not healthy after %v: %w", patience, err)
		}
	}
}

// list lists all rules of kube-proxy with the tool of a release.
func list(t *testing.T, host *netns.Host, root string, tool tool) (listed, outcome string) {
	t.Helper()
	for _, command := range tool.listings {
		out, err := inside(host, root, command).Output()
		var exit *exec.ExitError
		if errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signaled() {
			return "", crash
		}
		if err != nil {
			return "", err.Error()
		}
		listed += string(out)
	}
	return listed, same
}

// moving are the counters, priorities and comments of a listing: releases write them differently, or they change.
var moving = regexp.MustCompile(`\[\d+:\d+\]|packets \d+ bytes \d+|priority [^;]+;|(?m)^#.*$`)

// facts returns what a listing says of addresses, ports, marks, slots and names with a number, sorted.
func facts(listing string) []string {
	words := strings.Fields(moving.ReplaceAllString(listing, ""))
	words = slices.DeleteFunc(words, func(word string) bool { return !strings.ContainsAny(word, "0123456789") })
	slices.Sort(words)
	return words
}

// compare compares two listings of the same rules.
func compare(written, listed string) string {
	want, got := facts(written), facts(listed)
	if slices.Equal(want, got) {
		return same
	}
	for _, word := range got {
		at := slices.Index(want, word)
		if at < 0 {
			return fmt.Sprintf("lists %q, which was not written", word)
		}
		want = slices.Delete(want, at, at+1)
	}
	return partial
}
