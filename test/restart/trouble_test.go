//go:build linux

package restart

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// programs creates a folder with scripts in place of the iptables programs and sets kube-proxy's PATH to it. The scripts of
// the given suffixes, or with the name nft, run the given text, the others the real programs. Besides these the PATH has only
// a few shell tools.
func (r *trial) programs(script map[string]string) {
	r.t.Helper()
	dir := r.t.TempDir()
	r.env = append(os.Environ(), "PATH="+dir)
	tools := []string{"sh", "cat", "grep", "head", "cut", "sleep"}
	if script["nft"] != "" {
		tools = append(tools, "nft")
	}
	for _, stem := range []string{"iptables", "ip6tables"} {
		for _, variant := range []string{"", "-nft", "-legacy"} {
			for _, verb := range []string{"", "-save", "-restore"} {
				tools = append(tools, stem+variant+verb)
			}
		}
	}
	for _, name := range tools {
		path, err := exec.LookPath(name)
		if err != nil {
			r.t.Fatal(err)
		}
		text := "#!/bin/sh\nexec " + path + " \"$@\"\n"
		for suffix, other := range script {
			if name == "nft" && suffix == "nft" || strings.Contains(name, "tables") && strings.HasSuffix(name, suffix) && suffix != "nft" {
				text = "#!/bin/sh\nreal=" + path + "\n" + other + "\n"
			}
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o700); err != nil {
			r.t.Fatal(err)
		}
	}
}

// page returns the status and body of a page that kube-proxy serves inside node1, or zero values if there is no server.
func (r *trial) page(address, path string) (status int, body string) {
	r.t.Helper()
	_ = r.lab.Node1.Do(func() error {
		connection, err := net.DialTimeout("tcp4", address, time.Second)
		if err != nil {
			return err
		}
		defer connection.Close()
		fmt.Fprintf(connection, "GET %s HTTP/1.0\r\n\r\n", path)
		answer, err := http.ReadResponse(bufio.NewReader(connection), nil)
		if err != nil {
			return err
		}
		text, err := io.ReadAll(answer.Body)
		status, body = answer.StatusCode, string(text)
		return err
	})
	return status, body
}

// shows waits until the metrics contain a line.
func (r *trial) shows(line string) {
	r.t.Helper()
	name, _, _ := strings.Cut(line, "{")
	var last []string
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		_, body := r.page("127.0.0.1:10249", "/metrics")
		last = nil
		for shown := range strings.Lines(body) {
			if shown = strings.TrimSpace(shown); shown == line {
				return
			} else if strings.HasPrefix(shown, name) {
				last = append(last, shown)
			}
		}
	}
	r.t.Errorf("the metrics do not contain %s, but %q", line, last)
}

// counts waits until a metric is at least some number.
func (r *trial) counts(metric string, least int) {
	r.t.Helper()
	value := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(metric) + ` (\d+)$`)
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		_, body := r.page("127.0.0.1:10249", "/metrics")
		if found := value.FindStringSubmatch(body); found != nil {
			if n, err := strconv.Atoi(found[1]); err == nil && n >= least {
				return
			}
		}
	}
	r.t.Errorf("%s is not %d in 30 s", metric, least)
}

// ended kills kube-proxy and checks that its log contains some texts.
func (r *trial) ended(words ...string) {
	r.t.Helper()
	if err := r.proxy.Kill(); err != nil {
		r.t.Fatal(err)
	}
	for _, w := range words {
		if !strings.Contains(r.log.String(), w) {
			r.t.Errorf("the log does not contain %q:\n%s", w, r.log.String())
		}
	}
}

// TestKernelNoIPTables starts kube-proxy without a working iptables: it must exit with an error that says what to do.
func TestKernelNoIPTables(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		prepare func(r *trial)
		words   []string
	}{
		"none":  {func(r *trial) { r.env = append(os.Environ(), "PATH="+t.TempDir()) }, []string{"iptables is not installed", "install the iptables package", "nftables mode"}},
		"fails": {func(r *trial) { r.programs(map[string]string{"": "echo the disk is on fire >&2; exit 1"}) }, []string{"iptables-nft --version: exit status 1", "the disk is on fire"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, _ := newTrial(t)
			test.prepare(r)
			r.start(iptables)
			if err := r.proxy.Wait(); err == nil {
				t.Error("exit status 0")
			}
			r.ended(test.words...)
		})
	}
}

// TestKernelMissingModule simulates a kernel without the module of a table: kube-proxy must be unhealthy and log which
// module to load; after that it must serve without a restart.
func TestKernelMissingModule(t *testing.T) {
	t.Parallel()
	r, probes := newTrial(t)
	missing := filepath.Join(t.TempDir(), "missing")
	if err := os.WriteFile(missing, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r.programs(map[string]string{"-restore": `
if [ -e ` + missing + ` ]; then
	echo "iptables-restore v1.8.9 (legacy): iptables-restore: unable to initialize table 'nat'" >&2
	echo "Error occurred at line: 1" >&2
	echo "do you need to insmod?" >&2
	exit 2
fi
exec $real "$@"`})
	r.start(iptables)
	r.counts(`kubeproxy_sync_proxy_rules_iptables_restore_failures_total{ip_family="IPv4"}`, 3)
	if status, body := r.page("127.0.0.1:10256", "/healthz"); status != http.StatusServiceUnavailable {
		t.Errorf("/healthz is %d: %s", status, body)
	}
	if err := os.Remove(missing); err != nil {
		t.Fatal(err)
	}
	r.serves(probes)
	r.ended("unable to initialize table 'nat'", "load the modules iptable_nat and iptable_filter")
}

// TestKernelRefusedLine simulates an iptables-restore that rejects a line of one Service: the other Service must be served,
// and the rejected one reported in the log with the line, in an Event and in a metric. When it changes, it is retried. In
// the legacy variant, because in the nft variant the rules are written without the program.
func TestKernelRefusedLine(t *testing.T) {
	t.Parallel()
	r, probes := newTrial(t)
	newNode(t, r.lab.Node1.Host, "legacy")
	refuse := filepath.Join(t.TempDir(), "refuse")
	if err := os.WriteFile(refuse, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r.programs(map[string]string{"-restore": `
input=$(cat)
line=$(echo "$input" | grep -n web-30081 | head -n 1 | cut -d : -f 1)
if [ -e ` + refuse + ` ] && [ "$line" ]; then
	echo "iptables-restore v1.8.9 (legacy): Couldn't load match comment: No such file or directory" >&2
	echo "Error occurred at line: $line" >&2
	exit 2
fi
echo "$input" | $real "$@"`})
	r.start(iptables)
	r.serves(probes[:2])
	r.shows(`serviceproxy_refused_service_ports{ip_family="IPv4"} 1`)
	probe := probes[2]
	probe.From = r.lab.Node1.Host
	if answer := probe.Send(); answer.Verdict == netns.Answered {
		t.Errorf("the rejected Service answers: %v", answer)
	}
	if err := os.Remove(refuse); err != nil {
		t.Fatal(err)
	}
	r.write(1, r.pods[1:])
	r.serves(probes)
	r.shows(`serviceproxy_refused_service_ports{ip_family="IPv4"} 0`)
	r.ended("Service port quarantined", `default/web-30081:http from outside`,
		"Couldn't load match", `reason="RefusedByKernel"`, "node node1 does not serve default/web-30081:http/TCP in IPv4")
}

// TestKernelCleanupWithoutPrograms runs --cleanup without a working iptables: it must fail and report why it cannot remove
// the rules; if there are no rules, it must succeed.
func TestKernelCleanupWithoutPrograms(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		variant string
		prepare func(r *trial)
		words   string
	}{
		"none": {"nft", func(r *trial) { r.env = append(os.Environ(), "PATH="+t.TempDir()) }, "iptables is not installed"},
		"fail": {"legacy", func(r *trial) { r.programs(map[string]string{"": "echo the disk is on fire >&2; exit 1"}) }, "the disk is on fire"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, probes := newTrial(t)
			n := newNode(t, r.lab.Node1.Host, test.variant)
			before := n.rules()
			r.start(iptables)
			r.serves(probes)
			r.ended()
			test.prepare(r)
			cleanup := func() (string, error) {
				command := r.lab.Node1.Command(r.program, "--cleanup")
				command.Env = r.env
				out, err := command.CombinedOutput()
				return string(out), err
			}
			if out, err := cleanup(); err == nil || !strings.Contains(out, test.words) {
				t.Errorf("--cleanup: %v, want an error and %q in its output:\n%s", err, test.words, out)
			}
			if out, err := r.cleanup(); err != nil {
				t.Fatalf("--cleanup with iptables: %v: %s", err, out)
			}
			if after := n.rules(); after != before {
				t.Errorf("--cleanup leaves\n%s\nof what was before\n%s", after, before)
			}
			if out, err := cleanup(); err != nil {
				t.Errorf("--cleanup of nothing: %v: %s", err, out)
			}
		})
	}
}

// half are the rules of a program that was killed between two transactions: chains without rules, duplicate jumps to them,
// and rules of deleted Services that conflict with those of existing ones.
const half = `*nat
:KUBE-SERVICES - [0:0]
:KUBE-POSTROUTING - [0:0]
:KUBE-SVC-AAAAAAAAAAAAAAAA - [0:0]
:KUBE-SEP-AAAAAAAAAAAAAAAA - [0:0]
-A KUBE-SERVICES -d 10.96.0.10/32 -p tcp -m tcp --dport 80 -j KUBE-SVC-AAAAAAAAAAAAAAAA
-A KUBE-SERVICES -d 10.96.0.11/32 -j RETURN
-A KUBE-SVC-AAAAAAAAAAAAAAAA -j KUBE-SEP-AAAAAAAAAAAAAAAA
-A KUBE-SEP-AAAAAAAAAAAAAAAA -p tcp -m tcp -j DNAT --to-destination 10.244.9.9:8080
-A PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
COMMIT
*filter
:KUBE-SERVICES - [0:0]
:KUBE-FORWARD - [0:0]
-A KUBE-SERVICES -d 10.96.0.10/32 -p tcp -m tcp --dport 80 -j REJECT --reject-with icmp-port-unreachable
-A OUTPUT -m conntrack --ctstate NEW -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A FORWARD -j KUBE-FORWARD
COMMIT
`

// TestKernelHalfWritten starts kube-proxy with the partial rules of another program, in each variant: all Services must be
// served, and none of these rules may remain, also after --cleanup.
func TestKernelHalfWritten(t *testing.T) {
	t.Parallel()
	for _, variant := range []string{"nft", "legacy"} {
		t.Run(variant, func(t *testing.T) {
			t.Parallel()
			r, probes := newTrial(t)
			n := newNode(t, r.lab.Node1.Host, variant)
			before := n.rules()
			n.restore("iptables-"+variant, half)
			r.start(iptables)
			r.serves(probes)
			if rules := n.rules(); strings.Contains(rules, "AAAAAAAA") || strings.Contains(rules, "10.96.0.11/32 -j RETURN") {
				t.Errorf("old rules remain:\n%s", rules)
			}
			r.ended()
			if out, err := r.cleanup(); err != nil {
				t.Errorf("--cleanup: %v: %s", err, out)
			}
			if after := n.rules(); after != before {
				t.Errorf("--cleanup leaves\n%s\nof what was before\n%s", after, before)
			}
		})
	}
}
