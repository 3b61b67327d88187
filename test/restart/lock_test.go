//go:build linux

package restart

import (
	"context"
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
	"github.com/seed-11a05479/kube-proxy/test/squatter"
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
			prepare := r.lab.Node1.Command(r.program, "--init-only", "--proxy-mode", modes[1], "--hostname-override", "node1",
				"--conntrack-max-per-core", "0") // no namespace may set the machine's
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

// squat starts a squatter in node1, and waits until it has the lock's name or tries to get it.
func (r *trial) squat(s squatter.Squatter) *netns.Cmd {
	r.t.Helper()
	cmd, log := r.lab.Node1.Command(squatter.Path), &journal{}
	cmd.Env, cmd.Stdout, cmd.Stderr = s.Env(), log, log
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	log.says(r.t, s.What)
	return cmd
}

// follows changes a Service, and waits until a proxy has programmed the change.
func (r *trial) follows(probe netns.Probe) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	defer cancel()
	for _, p := range r.pods[:2] {
		r.write(0, []pod{p})
		if _, got, err := probe.Until(ctx, func(a netns.Answer) bool { return a.Verdict == netns.Answered && a.Endpoint == p.host.Name }); err != nil {
			r.t.Fatalf("a change is not programmed: %v, %v", got, err)
		}
	}
}

// TestKernelLockSquatted has a process of uid 0 without capabilities, as in a pod with hostNetwork, take the lock in every way
// before a proxy starts: the proxy names it and serves. A second proxy waits for the first one, and --cleanup works.
func TestKernelLockSquatted(t *testing.T) {
	for _, what := range []string{squatter.Bind, squatter.Full, squatter.Silent, squatter.Answer} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			r, probes := newTrial(t)
			intruder := r.squat(squatter.Squatter{What: what})
			began := time.Now()
			first, log := r.another(nftables)
			log.says(t, "The lock on this network namespace is incomplete")
			if what == squatter.Silent || what == squatter.Answer {
				log.says(t, fmt.Sprintf(`process %d (\"exe\") of user 0 does not have the capability NET_ADMIN`, intruder.Process.Pid))
			}
			r.serves(probes)
			r.healthy("127.0.0.1:10256", "lastUpdated")
			t.Logf("served after %v", time.Since(began).Round(time.Millisecond))
			second, waiting := r.another(nftables, "--healthz-bind-address", "127.0.0.1:20256")
			waiting.says(t, "Another kube-proxy serves this node", fmt.Sprintf("pid=%d", first.Process.Pid))
			r.healthy("127.0.0.1:20256", fmt.Sprintf("process %d", first.Process.Pid))
			terminate(t, first)
			waiting.says(t, "First sync succeeded")
			terminate(t, second)
			if out, err := r.cleanup(); err != nil {
				t.Errorf("--cleanup: %v: %s", err, out)
			}
			if left := newNode(t, r.lab.Node1.Host, "nft").rules(); strings.Contains(left, "kube-proxy") {
				t.Errorf("--cleanup leaves\n%s", left)
			}
		})
	}
}

// TestKernelLockSquattedAtHandover has such a process try to bind the name all the time. It wins when a proxy is replaced, and the
// next proxy serves all the same.
func TestKernelLockSquattedAtHandover(t *testing.T) {
	t.Parallel()
	r, probes := newTrial(t)
	first, _ := r.another(nftables)
	r.serves(probes)
	r.squat(squatter.Squatter{What: squatter.Poll})
	second, waiting := r.another(nftables)
	waiting.says(t, "Another kube-proxy serves this node")
	terminate(t, first)
	waiting.says(t, "First sync succeeded")
	r.follows(probes[0])
	terminate(t, second)
	third, log := r.another(nftables)
	log.says(t, "does not have the capability NET_ADMIN")
	log.says(t, "First sync succeeded")
	r.follows(probes[0])
	terminate(t, third)
}

// TestKernelLockUnreadable has a proxy in a process namespace of its own, as in a pod, in which it cannot see who has the name.
// One that answers may be v0.1.0, and is waited for, but not for long.
func TestKernelLockUnreadable(t *testing.T) {
	t.Parallel()
	r, probes := newTrial(t)
	r.squat(squatter.Squatter{What: squatter.Answer})
	log := &journal{}
	cmd := r.lab.Node1.Command("unshare", "--pid", "--fork", "--kill-child", "--mount-proc", r.program, "--manifests", r.dir, "--proxy-mode", nftables, "--hostname-override", "node1")
	cmd.Stdout, cmd.Stderr = log, log
	began := time.Now()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	log.says(t, "Another kube-proxy serves this node", "v0.1.0")
	log.says(t, "is in another process namespace")
	r.serves(probes)
	t.Logf("served after %v", time.Since(began).Round(time.Millisecond))
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

// TestKernelLockOfEarlierRelease has v0.1.0 serve: a proxy waits for it until it ends, and does not while another one has the name.
func TestKernelLockOfEarlierRelease(t *testing.T) {
	t.Parallel()
	r, probes := newTrial(t)
	earlier := r.squat(squatter.Squatter{What: squatter.Answer, Capable: true})
	proxy, log := r.another(nftables, "--healthz-bind-address", "127.0.0.1:20256")
	log.says(t, "Another kube-proxy serves this node", fmt.Sprintf("pid=%d", earlier.Process.Pid), "v0.1.0")
	r.healthy("127.0.0.1:20256", fmt.Sprintf("process %d", earlier.Process.Pid))
	if strings.Contains(log.String(), "Serving") {
		t.Errorf("it serves beside v0.1.0:\n%s", log)
	}
	if err := earlier.Kill(); err != nil {
		t.Error(err)
	}
	log.says(t, "First sync succeeded")
	r.serves(probes)
	terminate(t, proxy)
}
