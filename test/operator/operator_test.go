//go:build linux

package operator

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-11a05479/kube-proxy/test/kubeproxy"
	"github.com/seed-11a05479/kube-proxy/test/netns"
)

func TestMain(m *testing.M) { kubeproxy.Main(m) }

// patience bounds the wait for what takes some milliseconds on an idle machine.
const patience = 20 * time.Second

// operator is on call for node1.
type operator struct {
	*testing.T
	lab     *netns.Lab
	dir     string
	program string
}

// TestKernelOperator runs each scenario in namespaces of its own. It prints how long the command took.
func TestKernelOperator(t *testing.T) {
	for _, s := range slices.Concat(found(), others()) {
		modes := s.modes
		if modes == nil {
			modes = []string{nftables}
		}
		for _, mode := range modes {
			t.Run(s.name+"/"+mode, func(t *testing.T) {
				t.Parallel()
				newOperator(t).answers(&s, mode)
			})
		}
	}
}

func newOperator(t *testing.T) *operator {
	w := &operator{T: t, dir: t.TempDir(), program: kubeproxy.Path(t), lab: netns.Start(t, netns.Options{
		ClientRoutes: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}})}
	for _, host := range []*netns.Host{w.lab.Node1.Pods[0], w.lab.Node2.Pods[0]} {
		for _, protocol := range []netns.Protocol{netns.TCP, netns.UDP} {
			if _, err := host.Serve(protocol, 8080); err != nil {
				t.Fatal(err)
			}
		}
	}
	w.forbid()
	taken, err := w.lab.Node1.Listen("tcp", "0.0.0.0:32443")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { taken.Close() })
	return w
}

// forbid serves an API server that forbids everything.
func (w *operator) forbid() {
	w.Helper()
	listener, err := w.lab.Node1.Listen("tcp", "127.0.0.1:6443")
	if err != nil {
		w.Fatal(err)
	}
	server := &http.Server{ReadHeaderTimeout: patience, Handler: http.HandlerFunc(func(out http.ResponseWriter, _ *http.Request) {
		out.Header().Set("Content-Type", "application/json")
		out.WriteHeader(http.StatusForbidden)
		fmt.Fprint(out, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "code": 403, "message": "forbidden"}`)
	})}
	go func() { _ = server.Serve(listener) }()
	w.Cleanup(func() { server.Close() })
	for name, port := range map[string]string{"forbidden": "6443", "unreachable": "6444"} {
		w.write(name, "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: c}}]\n"+
			"clusters: [{name: c, cluster: {server: 'http://127.0.0.1:"+port+"'}}]\n")
	}
}

// write writes a file.
func (w *operator) write(name, text string) {
	w.Helper()
	if err := os.MkdirAll(filepath.Dir(filepath.Join(w.dir, name)), 0o700); err != nil {
		w.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(w.dir, name), []byte(text), 0o600); err != nil {
		w.Fatal(err)
	}
}

// await is a function of all scripts: it waits until a command succeeds.
const await = `await() { timeout 20 sh -c "until $1; do sleep 0.05; done" > /dev/null 2>&1; }; `

// shell prepares a script in node1, which knows the program and the folder of files.
func (w *operator) shell(script string) *netns.Cmd {
	cmd := w.lab.Node1.Command("sh", "-ec", await+script)
	cmd.Env = append(os.Environ(), "DIR="+w.dir, "PROXY="+w.program)
	return cmd
}

// run runs a script that must succeed.
func (w *operator) run(script string) {
	w.Helper()
	if script == "" {
		return
	}
	if out, err := w.shell(script).CombinedOutput(); err != nil {
		w.Fatalf("%s: %v: %s", script, err, out)
	}
}

// answers breaks what a scenario breaks, and runs its command.
func (w *operator) answers(s *scenario, mode string) {
	w.Helper()
	w.write("objects/objects.yaml", s.objects)
	w.run(s.before)
	if !s.none {
		w.proxy(s, mode)
	}
	w.run(s.breaks)
	for began := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		took, wrong := w.try(s)
		if wrong == nil {
			w.Logf("%d ms: kube-proxy %s: %s", took.Milliseconds(), s.command, strings.Join(s.names, " … "))
			return
		}
		if s.send != "" || time.Since(began) > patience {
			w.Fatal(wrong)
		}
		if s.repaired {
			w.run(s.breaks)
		}
	}
}

// proxy runs kube-proxy until the test ends, and waits until it serves its status.
func (w *operator) proxy(s *scenario, mode string) {
	w.Helper()
	source := "--manifests $DIR/objects"
	if s.kubeconfig != "" {
		source = "--kubeconfig $DIR/" + s.kubeconfig
	}
	log := &netns.Log{}
	cmd := w.shell(fmt.Sprintf("test ! -d $DIR/bin || PATH=$DIR/bin; exec $PROXY %s --proxy-mode %s --hostname-override node1 --bind-address %s --cluster-cidr 10.244.0.0/16 --conntrack-max-per-core 0 %s",
		source, mode, w.lab.Node1.IPv4, s.flags))
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() {
		if err := cmd.Kill(); err != nil {
			w.Error(err)
		}
		if w.Failed() {
			w.Log(log.String())
		}
	})
	path := "services"
	if s.unready {
		path = "info"
	}
	client := http.Client{Transport: &http.Transport{DialContext: w.lab.Node1.Dial, DisableKeepAlives: true}}
	for began := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		response, err := client.Get("http://127.0.0.1:10249/api/v1alpha1/" + path)
		if err == nil {
			response.Body.Close()
			if response.StatusCode == http.StatusOK {
				break
			}
		}
		if time.Since(began) > patience {
			w.Fatalf("the proxy does not serve: %v", err)
		}
	}
	w.run("echo " + fmt.Sprint(cmd.Process.Pid) + " > $DIR/pid")
}

// try runs the command once, and returns how long it took, and what is wrong with its answer.
func (w *operator) try(s *scenario) (took time.Duration, wrong error) {
	ctx, cancel := context.WithTimeout(w.Context(), patience)
	defer cancel()
	out := &netns.Log{}
	command := "exec $PROXY " + s.command
	if s.send != "" {
		command += " --count 1 --duration 10s"
	}
	cmd := w.shell(command)
	cmd.Stdout, cmd.Stderr = out, out
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	defer context.AfterFunc(ctx, func() { _ = cmd.Kill() })()
	if s.send != "" {
		w.send(s.send, out)
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); err != nil && !errors.As(err, &exit) {
		return 0, err
	}
	took = time.Since(began)
	code, text := cmd.ProcessState.ExitCode(), strings.Join(strings.Fields(out.String()), " ")
	var missing []string
	for _, name := range s.names {
		if !strings.Contains(text, name) {
			missing = append(missing, name)
		}
	}
	if code != s.code || missing != nil || s.not != "" && strings.Contains(text, s.not) {
		return took, fmt.Errorf("kube-proxy %s: exit code %d, want %d; not named: %q\n%s", s.command, code, s.code, missing, out.String())
	}
	return took, nil
}

// send sends a packet when the trace has begun.
func (w *operator) send(packet string, trace *netns.Log) {
	w.Helper()
	for began := time.Now(); !strings.Contains(trace.String(), "Tracing up to"); time.Sleep(10 * time.Millisecond) {
		if time.Since(began) > patience || strings.Contains(trace.String(), "error:") {
			w.Fatalf("the trace has not begun: %s", trace.String())
		}
	}
	name, to, _ := strings.Cut(packet, " ")
	to, udp := strings.CutSuffix(to, "/udp")
	host, err := w.lab.Host(name)
	if err != nil {
		w.Fatal(err)
	}
	probe := netns.Probe{From: host, To: netip.MustParseAddrPort(to), Protocol: netns.TCP, Timeout: 100 * time.Millisecond}
	if udp {
		probe.Protocol, probe.Source = netns.UDP, netip.AddrPortFrom(host.Addr(netns.FamilyOf(probe.To.Addr())), 40000)
	}
	w.Logf("%s: %s", probe, probe.Send())
}
