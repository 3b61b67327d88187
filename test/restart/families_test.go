//go:build linux

package restart

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestKernelNoTables simulates a kernel without the tables of IPv6: IPv4 must be served, and kube-proxy be healthy. When the
// tables exist, kube-proxy must end, to start again with both families. Until then the rules of another mode serve IPv6.
func TestKernelNoTables(t *testing.T) {
	t.Parallel()
	r, probes := newTrial(t)
	missing := filepath.Join(t.TempDir(), "missing")
	if err := os.WriteFile(missing, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r.programs(map[string]string{"": `
case "$real $*" in
*ip6tables*--version*) ;;
*ip6tables*)
	if [ -e ` + missing + ` ]; then
		echo "ip6tables v1.8.9 (nf_tables): can't initialize ip6tables table 'nat': Table does not exist (do you need to insmod?)" >&2
		exit 3
	fi
esac
exec $real "$@"`})
	tables := func() string {
		out, err := r.lab.Node1.Command("nft", "list", "tables").Output()
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	for _, family := range []string{"ip", "ip6"} {
		if err := r.lab.Node1.Command("nft", "add", "table", family, "kube-proxy").Run(); err != nil {
			t.Fatal(err)
		}
	}
	r.start(iptables)
	r.serves(probes)
	for deadline := time.Now().Add(time.Minute); strings.Contains(tables(), "table ip kube-proxy"); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("IPv4's rules of the mode before are not removed:\n%s", r.log.String())
		}
	}
	if !strings.Contains(tables(), "table ip6 kube-proxy") {
		t.Error("IPv6 has lost its rules of the mode before")
	}
	if status, body := r.page("127.0.0.1:10256", "/healthz"); status != http.StatusOK {
		t.Errorf("/healthz is %d: %s", status, body)
	}
	if err := os.Remove(missing); err != nil {
		t.Fatal(err)
	}
	if err := r.proxy.Wait(); err == nil {
		t.Error("exit status 0")
	}
	for _, words := range []string{"Only one address family is served", "Table does not exist", "IPv6 can be served now"} {
		if !strings.Contains(r.log.String(), words) {
			t.Errorf("the log does not contain %q:\n%s", words, r.log.String())
		}
	}
}

// TestKernelInitOnlyChecks runs --init-only without the programs of a mode: it must fail and name what is missing.
func TestKernelInitOnlyChecks(t *testing.T) {
	t.Parallel()
	for mode, words := range map[string]string{"nftables": "install nftables", "iptables": "iptables is not installed"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			r, _ := newTrial(t)
			command := r.lab.Node1.Command(r.program, "--init-only", "--proxy-mode", mode, "--hostname-override", "node1",
				"--conntrack-tcp-timeout-established", "0s", "--conntrack-tcp-timeout-close-wait", "0s")
			command.Env = append(os.Environ(), "PATH="+t.TempDir())
			if out, err := command.CombinedOutput(); err == nil || !strings.Contains(string(out), words) {
				t.Errorf("--init-only: %v, want an error and %q in its output:\n%s", err, words, out)
			}
		})
	}
}
