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
	// longest is when the kills and connections end on a machine that is too slow for that many.
	longest = 140 * time.Second
)

// pod is an endpoint.
type pod struct {
	addr netip.Addr
	node string
}

// service writes a Service whose endpoints are some of the pods; file is replaced as a whole.
func service(file, clusterIP string, nodePort int, pods []pod) error {
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

// build compiles kube-proxy as it is now.
func build(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kube-proxy")
	if out, err := exec.Command("go", "build", "-o", path, "../../cmd/kube-proxy").CombinedOutput(); err != nil {
		t.Fatalf("compile kube-proxy: %v\n%s", err, out)
	}
	return path
}

// TestKernelRestarts kills kube-proxy (SIGKILL) at random moments, also while it starts, and starts it again at random
// moments, while its Services' endpoints change all the time. No connection may fail, by cluster IP or node port: the
// kernel's rules are right after every transaction, and a restart takes none away.
func TestKernelRestarts(t *testing.T) {
	lab := netns.Start(t, netns.Options{ClientRoutes: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")}})
	program, dir := build(t), t.TempDir()
	var pods []pod
	for _, node := range lab.Nodes() {
		for _, host := range node.Pods {
			pods = append(pods, pod{host.IPv4, node.Name})
			if _, err := host.Serve(netns.TCP, 8080); err != nil {
				t.Fatal(err)
			}
		}
	}
	var probes []netns.Probe
	for i := range 2 {
		ip, nodePort := fmt.Sprintf("10.96.0.1%d", i), 30080+i
		if err := service(filepath.Join(dir, fmt.Sprint(i, ".yaml")), ip, nodePort, pods); err != nil {
			t.Fatal(err)
		}
		// A connection that waits for the machine is not one that fails.
		probes = append(probes,
			netns.Probe{From: lab.Node1.Pods[1], To: netip.AddrPortFrom(netip.MustParseAddr(ip), 80), Timeout: 900 * time.Millisecond},
			netns.Probe{From: lab.Client, To: netip.AddrPortFrom(lab.Node1.IPv4, uint16(nodePort)), Timeout: 900 * time.Millisecond})
	}
	var log bytes.Buffer
	start := func() *netns.Cmd {
		command := lab.Node1.Command(program, "--manifests", dir, "--proxy-mode", "nftables", "--hostname-override", "node1",
			"--cluster-cidr", "10.244.0.0/16", "--healthz-bind-address", "127.0.0.1:10256", "--metrics-bind-address", "127.0.0.1:10249")
		command.Stdout, command.Stderr = &log, &log
		if err := command.Start(); err != nil {
			t.Fatal(err)
		}
		return command
	}
	proxy := start()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, probe := range probes {
		if _, _, err := probe.Until(ctx, func(a netns.Answer) bool { return a.Verdict == netns.Answered }); err != nil {
			t.Fatalf("%v\n%s", err, log.String())
		}
	}
	var streams []*netns.Stream
	for _, probe := range probes {
		streams = append(streams, probe.Stream(t.Context(), perSecond/len(probes)))
	}
	sent := func() (n int) {
		for _, s := range streams {
			n += s.Tally().Sent
		}
		return n
	}
	seed := rand.Uint64()
	rnd := rand.New(rand.NewPCG(seed, 0))
	killed, writes, began := 0, 0, time.Now()
	share := connections / (kills + 1) * time.Second / perSecond
	next := began.Add(share)
	for killed < kills || sent() < connections && time.Since(began) < longest {
		time.Sleep(100 * time.Millisecond)
		some := pods[rnd.IntN(len(pods)):]
		if err := service(filepath.Join(dir, fmt.Sprint(writes%2, ".yaml")), fmt.Sprintf("10.96.0.1%d", writes%2), 30080+writes%2, some); err != nil {
			t.Fatal(err)
		}
		writes++
		if killed == kills || time.Now().Before(next) {
			continue
		}
		if err := proxy.Kill(); err != nil {
			t.Fatal(err)
		}
		killed++
		time.Sleep(time.Duration(rnd.Int64N(int64(time.Second))))
		proxy = start()
		// Half of the lives are so short that they end somewhere in the start.
		life := time.Duration(rnd.Int64N(int64(2*share) - int64(time.Second)))
		if killed%2 == 0 {
			life = time.Duration(rnd.Int64N(int64(500 * time.Millisecond)))
		}
		next = time.Now().Add(life)
	}
	failed, total := 0, 0
	for i, s := range streams {
		tally := s.Stop()
		failed, total = failed+tally.Failed(), total+tally.Sent
		if tally.Failed() > 0 {
			t.Errorf("%s: %s; first %s", probes[i], tally, tally.Failures[0])
		}
	}
	if err := proxy.Kill(); err != nil {
		t.Error(err)
	}
	if t.Failed() {
		t.Logf("seed %d, log:\n%s", seed, log.String())
	}
	t.Logf("%d of %d new connections failed over %d kills and restarts in %v, with %d changes of endpoints", failed, total, killed,
		time.Since(began).Round(time.Second), writes)
}
