//go:build linux

package restart

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/seed-11a05479/kube-proxy/test/netns"
)

const (
	kills       = 20
	connections = 100_000
	perSecond   = 1000
	// longest is the time limit of the kills and connections on a slow machine.
	longest = 140 * time.Second
)

// pod is an endpoint.
type pod struct {
	addr netip.Addr
	node string
}

// service writes a Service with the given pods as endpoints; it replaces the file atomically.
func service(file string, clusterIP netip.Addr, nodePort uint16, pods []pod) error {
	var b strings.Builder
	fmt.Fprintf(&b, `apiVersion: v1
kind: Service
metadata: {name: web-%[1]d, namespace: default}
spec:
  clusterIP: %[2]s
  ports: [{name: http, port: 80, nodePort: %[1]d}]
  type: NodePort
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-%[1]d, namespace: default, labels: {kubernetes.io/service-name: web-%[1]d}}
addressType: IPv4
ports: [{name: http, port: 8080}]
endpoints:
`, nodePort, clusterIP)
	for _, pod := range pods {
		fmt.Fprintf(&b, "- {addresses: [%s], nodeName: %s}\n", pod.addr, pod.node)
	}
	if err := os.WriteFile(file+".new", []byte(b.String()), 0o600); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}

// build compiles kube-proxy, unless the environment variable KUBE_PROXY has the path of one that is compiled (test/kernels).
func build(t *testing.T) string {
	t.Helper()
	if program := os.Getenv("KUBE_PROXY"); program != "" {
		return program
	}
	path := filepath.Join(t.TempDir(), "kube-proxy")
	if out, err := exec.Command("go", "build", "-o", path, "../../cmd/kube-proxy").CombinedOutput(); err != nil {
		t.Fatalf("compile kube-proxy: %v\n%s", err, out)
	}
	return path
}

// trial is a lab in which kube-proxy serves two Services whose endpoints change continuously.
type trial struct {
	t             *testing.T
	lab           *netns.Lab
	program, dir  string
	env           []string // of kube-proxy; nil means that of the test
	args          []string // more of kube-proxy's flags
	pods          []pod
	log           bytes.Buffer
	proxy         *netns.Cmd
	random        *rand.Rand
	kills, writes int
}

// newTrial creates everything except kube-proxy, and returns a probe for each address of the Services.
func newTrial(t *testing.T) (*trial, []netns.Probe) {
	r := &trial{t: t, lab: netns.Start(t, netns.Options{ClientRoutes: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")}}),
		program: build(t), dir: t.TempDir(), random: rand.New(rand.NewPCG(rand.Uint64(), 0))}
	for _, node := range r.lab.Nodes() {
		for _, host := range node.Pods {
			r.pods = append(r.pods, pod{host.IPv4, node.Name})
			if _, err := host.Serve(netns.TCP, 8080); err != nil {
				t.Fatal(err)
			}
		}
	}
	var probes []netns.Probe
	for i := range 2 {
		r.write(i, r.pods)
		// A connection that is slow because the machine is busy must not count as failed.
		const patience = 900 * time.Millisecond
		clusterIP, nodePort := address(i)
		probes = append(probes,
			netns.Probe{From: r.lab.Node1.Pods[1], To: netip.AddrPortFrom(clusterIP, 80), Timeout: patience},
			netns.Probe{From: r.lab.Client, To: netip.AddrPortFrom(r.lab.Node1.IPv4, nodePort), Timeout: patience})
	}
	return r, probes
}

// start starts kube-proxy.
func (r *trial) start(mode string) {
	r.t.Helper()
	r.proxy = r.lab.Node1.Command(r.program, append([]string{"--manifests", r.dir, "--proxy-mode", mode, "--hostname-override", "node1",
		"--cluster-cidr", "10.244.0.0/16", "--healthz-bind-address", "127.0.0.1:10256", "--metrics-bind-address", "127.0.0.1:10249"}, r.args...)...)
	r.proxy.Stdout, r.proxy.Stderr, r.proxy.Env = &r.log, &r.log, r.env
	if err := r.proxy.Start(); err != nil {
		r.t.Fatal(err)
	}
}

// serves waits until the probes are answered.
func (r *trial) serves(probes []netns.Probe) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	defer cancel()
	for _, probe := range probes {
		// Node1 itself sends the probes: conntrack remembers for two minutes that a connection made before the rules exist is
		// not translated, and the streams may reuse its port.
		probe.From = r.lab.Node1.Host
		if _, _, err := probe.Until(ctx, func(a netns.Answer) bool { return a.Verdict == netns.Answered }); err != nil {
			r.t.Fatalf("%v\n%s", err, r.log.String())
		}
	}
}

// address returns the nth Service's cluster IP and node port.
func address(n int) (netip.Addr, uint16) {
	return netip.AddrFrom4([4]byte{10, 96, 0, byte(10 + n)}), uint16(30080 + n)
}

// write writes the nth Service with some endpoints.
func (r *trial) write(n int, pods []pod) {
	r.t.Helper()
	clusterIP, nodePort := address(n)
	if err := service(filepath.Join(r.dir, fmt.Sprint(n, ".yaml")), clusterIP, nodePort, pods); err != nil {
		r.t.Fatal(err)
	}
}

// kill kills kube-proxy and starts it again a moment later.
func (r *trial) kill() {
	r.t.Helper()
	if err := r.proxy.Kill(); err != nil {
		r.t.Fatal(err)
	}
	r.kills++
	time.Sleep(time.Duration(r.random.Int64N(int64(time.Second))))
	r.start(nftables)
}

// disturb changes endpoints and kills kube-proxy until all kills are done or the time limit has passed.
func (r *trial) disturb(enough func() bool) {
	const share = connections / (kills + 1) * time.Second / perSecond
	next := time.Now().Add(share)
	for r.kills < kills || !enough() {
		time.Sleep(100 * time.Millisecond)
		r.write(r.writes%2, r.pods[r.random.IntN(len(r.pods)):])
		r.writes++
		if r.kills == kills || time.Now().Before(next) {
			continue
		}
		r.kill()
		// Half of the processes are killed during their start.
		life := time.Duration(r.random.Int64N(int64(2*share - time.Second)))
		if r.kills%2 == 0 {
			life = time.Duration(r.random.Int64N(int64(500 * time.Millisecond)))
		}
		next = time.Now().Add(life)
	}
}

// streams opens connections continuously, to all addresses.
type streams []stream

type stream struct {
	*netns.Stream
	probe netns.Probe
}

func (r *trial) stream(probes []netns.Probe) (all streams) {
	for _, probe := range probes {
		all = append(all, stream{probe.Stream(r.t.Context(), perSecond/len(probes)), probe})
	}
	return all
}

func (all streams) sent() (sent int) {
	for _, s := range all {
		sent += s.Tally().Sent
	}
	return sent
}

// stop ends the streams and returns the totals. A failed connection fails the test.
func (all streams) stop(t *testing.T) (failed, total int) {
	t.Helper()
	for _, s := range all {
		tally := s.Stop()
		failed, total = failed+tally.Failed(), total+tally.Sent
		if tally.Failed() > 0 {
			t.Errorf("%s: %s; first %s", s.probe, tally, tally.Failures[0])
		}
	}
	return failed, total
}

// TestKernelRestarts kills kube-proxy (SIGKILL) at random moments, also while it starts, and starts it again at random
// moments, while the endpoints of its Services change continuously. No connection to a cluster IP or node port may fail:
// the rules must be correct after every transaction, and a restart must not remove any.
func TestKernelRestarts(t *testing.T) {
	r, probes := newTrial(t)
	r.start(nftables)
	r.serves(probes)
	began, streams := time.Now(), r.stream(probes)
	r.disturb(func() bool { return streams.sent() >= connections || time.Since(began) > longest })
	failed, total := streams.stop(t)
	if err := r.proxy.Kill(); err != nil {
		t.Error(err)
	}
	if t.Failed() {
		t.Log(r.log.String())
	}
	t.Logf("%d of %d new connections failed over %d kills and restarts in %v, with %d changes of endpoints", failed, total, r.kills,
		time.Since(began).Round(time.Second), r.writes)
}
