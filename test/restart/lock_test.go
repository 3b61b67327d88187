//go:build linux

package restart

import (
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// journal is the log of a process.
type journal struct{ netns.Log }

// says waits until the log has a line that contains all these texts.
func (j *journal) says(t *testing.T, words ...string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		for line := range strings.Lines(j.String()) {
			missing := 0
			for _, word := range words {
				if !strings.Contains(line, word) {
					missing++
				}
			}
			if missing == 0 {
				return
			}
		}
	}
	t.Fatalf("the log has no line with %q:\n%s", words, j)
}

// another starts another kube-proxy in node1, with flags that override those of start.
func (r *trial) another(mode string, flags ...string) (*netns.Cmd, *journal) {
	r.t.Helper()
	log := &journal{}
	cmd := r.lab.Node1.Command(r.program, append([]string{"--manifests", r.dir, "--proxy-mode", mode, "--hostname-override", "node1",
		"--cluster-cidr", "10.244.0.0/16", "--healthz-bind-address", "127.0.0.1:10256", "--metrics-bind-address", "127.0.0.1:10249"}, flags...)...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	return cmd, log
}

// terminate stops a proxy with SIGTERM, like the kubelet, and checks that it exits with status 0.
func terminate(t *testing.T, cmd *netns.Cmd) {
	t.Helper()
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("after SIGTERM: %v", err)
	}
}

// healthy waits until /healthz at an address in node1 answers 200 with some words.
func (r *trial) healthy(address, words string) {
	r.t.Helper()
	var status int
	var body string
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if status, body = r.page(address, "/healthz"); status == http.StatusOK && strings.Contains(body, words) {
			return
		}
	}
	r.t.Errorf("/healthz at %s gives %d %s, want 200 with %q", address, status, body, words)
}

// tracked returns a setting of connection tracking of node1.
func (r *trial) tracked(name string) string {
	r.t.Helper()
	out, err := r.lab.Node1.Command("cat", "/proc/sys/net/netfilter/nf_conntrack_"+name).CombinedOutput()
	if err != nil {
		r.t.Fatalf("%v: %s", err, out)
	}
	return strings.TrimSpace(string(out))
}

// TestKernelSecondProxySettings starts a second proxy with other kernel settings: it writes them when it takes over, and not
// while it waits.
func TestKernelSecondProxySettings(t *testing.T) {
	t.Parallel()
	const flag, setting = "--conntrack-udp-timeout", "udp_timeout"
	r, probes := newTrial(t)
	first, _ := r.another(nftables, flag, "41s")
	r.serves(probes)
	if got := r.tracked(setting); got != "41" {
		t.Fatalf("the first proxy serves and %s is %s, want 41", setting, got)
	}
	second, log := r.another(nftables, flag, "43s")
	log.says(t, "Another kube-proxy serves this node", fmt.Sprintf("pid=%d", first.Process.Pid))
	if got := r.tracked(setting); got != "41" {
		t.Errorf("while the second proxy waits, %s is %s, want 41", setting, got)
	}
	terminate(t, first)
	log.says(t, "Serving", `node="node1"`)
	if got := r.tracked(setting); got != "43" {
		t.Errorf("after the second proxy took over, %s is %s, want 43", setting, got)
	}
	terminate(t, second)
}

// TestKernelSecondProxy starts a second proxy while one is running: it must log which process it waits for, write nothing,
// and take over when the first one exits, after SIGTERM or SIGKILL, without a failed connection. Meanwhile --cleanup must
// fail and --init-only must work.
func TestKernelSecondProxy(t *testing.T) {
	t.Parallel()
	for _, modes := range [][2]string{{nftables, nftables}, {iptables, iptables}, {nftables, iptables}, {iptables, nftables}} {
		t.Run(modes[0]+"-"+modes[1], func(t *testing.T) {
			t.Parallel()
			r, probes := newTrial(t)
			n := newNode(t, r.lab.Node1.Host, "nft")
			first, log := r.another(modes[0])
			t.Cleanup(func() {
				if t.Failed() {
					t.Logf("the first:\n%s", log)
				}
			})
			r.serves(probes)
			if other := map[string]string{nftables: iptables, iptables: nftables}[modes[0]]; !n.onlyIn(modes[0], other) {
				t.Fatal("the first proxy does not serve")
			}
			before := n.rules()
			streams := r.stream(probes)

			second, waiting := r.another(modes[1], "--healthz-bind-address", "127.0.0.1:20256")
			waiting.says(t, "Another kube-proxy serves this node", fmt.Sprintf("pid=%d", first.Process.Pid), `mode="`+modes[0]+`"`, "version=", "since=")
			r.healthy("127.0.0.1:20256", fmt.Sprintf("process %d, mode %s", first.Process.Pid, modes[0]))
			if out, err := r.cleanup(); exitCode(err) != 1 || !strings.Contains(out, fmt.Sprintf("process %d", first.Process.Pid)) {
				t.Errorf("--cleanup beside a proxy: %v: %s", err, out)
			}
			prepare := r.lab.Node1.Command(r.program, "--init-only", "--proxy-mode", modes[1], "--hostname-override", "node1")
			if out, err := prepare.CombinedOutput(); err != nil {
				t.Errorf("--init-only beside a proxy: %v: %s", err, out)
			}
			third, impatient := r.another(modes[1])
			impatient.says(t, "Another kube-proxy serves this node")
			terminate(t, third)
			if after := n.rules(); after != before {
				t.Errorf("beside the first proxy, others changed its rules to\n%s\nfrom\n%s", after, before)
			}

			terminate(t, first)
			waiting.says(t, "The other kube-proxy ended; taking over")
			r.healthy("127.0.0.1:20256", "lastUpdated")
			if other := map[string]string{nftables: iptables, iptables: nftables}[modes[1]]; !n.onlyIn(modes[1], other) {
				t.Errorf("the second proxy does not serve: there is\n%s\n%s", n.rules(), waiting)
			}
			fourth, last := r.another(modes[1])
			last.says(t, "Another kube-proxy serves this node", fmt.Sprintf("pid=%d", second.Process.Pid))
			if err := second.Kill(); err != nil {
				t.Error(err)
			}
			last.says(t, "The other kube-proxy ended; taking over")
			r.healthy("127.0.0.1:10256", "lastUpdated")
			streams.stop(t)
			terminate(t, fourth)
		})
	}
}

// exitCode is that of a process that ended with err; 0 is success, -1 that it did not run.
func exitCode(err error) int {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.ExitCode()
	}
	return -1
}

// TestKernelLockStopped stops a proxy: the one that waits for it is not healthy, and says so in its metrics. It is healthy again when
// the first one goes on.
func TestKernelLockStopped(t *testing.T) {
	t.Parallel()
	r, probes := newTrial(t)
	first, _ := r.another(nftables)
	r.serves(probes)
	second, log := r.another(nftables, "--healthz-bind-address", "127.0.0.1:20256", "--metrics-bind-address", "127.0.0.1:20249")
	r.healthy("127.0.0.1:20256", "waitingFor")
	r.metric("127.0.0.1:20249", `serviceproxy_waiting{reason="other_proxy"} 1`, `serviceproxy_waiting{reason="other_proxy_not_serving"} 0`)
	if err := first.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	log.says(t, "does not serve it", fmt.Sprintf("process %d (it does not answer)", first.Process.Pid))
	if status, body := r.page("127.0.0.1:20256", "/healthz"); status != http.StatusServiceUnavailable || !strings.Contains(body, "does not answer") {
		t.Errorf("/healthz beside a stopped proxy: %d %s", status, body)
	}
	if status, body := r.page("127.0.0.1:20256", "/livez"); status != http.StatusOK {
		t.Errorf("/livez beside a stopped proxy: %d %s", status, body)
	}
	r.metric("127.0.0.1:20249", `serviceproxy_waiting{reason="other_proxy_not_serving"} 1`)
	if err := first.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	r.healthy("127.0.0.1:20256", "waitingFor")
	terminate(t, first)
	log.says(t, "First sync succeeded")
	r.metric("127.0.0.1:20249", `serviceproxy_waiting{reason="other_proxy"} 0`, `serviceproxy_waiting{reason="other_proxy_not_serving"} 0`)
	terminate(t, second)
}

// metric waits until the metrics at an address in node1 contain some lines.
func (r *trial) metric(address string, lines ...string) {
	r.t.Helper()
	var body string
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		_, body = r.page(address, "/metrics")
		if !slices.ContainsFunc(lines, func(line string) bool { return !strings.Contains(body, line) }) {
			return
		}
	}
	r.t.Errorf("/metrics at %s lacks one of %q:\n%s", address, lines, body)
}
