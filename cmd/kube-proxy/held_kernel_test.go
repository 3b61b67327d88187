//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/config"
	"github.com/seed-11a05479/kube-proxy/test/clusters"
	"github.com/seed-11a05479/kube-proxy/test/kubeproxy"
	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// The tests of this file with hundreds of connections are not parallel: beside them others would be slow.

// checkPort is the health check node port of a Service.
const checkPort = 32000

// checkedService returns the manifest of a Service with a health check node port, and an endpoint on this node.
func checkedService() string {
	return clusters.Service("default/checked", fmt.Sprintf("type: LoadBalancer, clusterIP: 10.96.0.30, externalTrafficPolicy: Local, "+
		"healthCheckNodePort: %d, ports: [{name: http, port: 80, nodePort: 30090}]", checkPort)) +
		clusters.Slice("default/checked", "checked-1", "{name: http, port: 8080}", "{addresses: [10.244.1.2], nodeName: node1}")
}

// limited makes the proxy that runs next have at most this many file descriptors.
func (w *trial) limited(files int) {
	w.Helper()
	script := filepath.Join(w.TempDir(), "kube-proxy")
	if err := os.WriteFile(script, fmt.Appendf(nil, "#!/bin/sh\nulimit -n %d\nexec %s \"$@\"\n", files, w.program), 0o700); err != nil {
		w.Fatal(err)
	}
	w.program = script
}

// again is how long holders wait before they dial again.
const again = 200 * time.Millisecond

// holders keep connections open, each after a request for path. They dial again when a connection is closed.
type holders struct {
	from     *netns.Host
	to, path string
	// reading reports whether they read the answer, again is the pause before they dial again.
	reading bool
	again   time.Duration
	wait    sync.WaitGroup
}

// hold starts holders of n connections. stop ends them.
func (h *holders) hold(ctx context.Context, n int) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	for range n {
		h.wait.Go(func() {
			for ctx.Err() == nil {
				h.once(ctx)
				select {
				case <-ctx.Done():
				case <-time.After(h.again):
				}
			}
		})
	}
	return func() {
		cancel()
		h.wait.Wait()
	}
}

// once opens a connection, sends a request, and waits until the connection is closed.
func (h *holders) once(ctx context.Context) {
	var connection net.Conn
	err := h.from.Do(func() (err error) {
		connection, err = (&net.Dialer{Control: asNobody}).DialContext(ctx, "tcp", h.to)
		return err
	})
	if err != nil {
		return
	}
	defer connection.Close()
	defer context.AfterFunc(ctx, func() { _ = connection.Close() })()
	if _, err := fmt.Fprintf(connection, "GET %s HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", h.path); err != nil {
		return
	}
	if h.reading {
		_, _ = io.Copy(io.Discard, connection)
		return
	}
	poll, err := connection.(*net.TCPConn).SyscallConn()
	if err != nil {
		return
	}
	_ = poll.Read(func(fd uintptr) bool { // until the connection is reset, without reading what has arrived
		pending := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
		n, err := unix.Poll(pending, 0)
		return n > 0 || err != nil || ctx.Err() != nil
	})
}

// asNobody makes a socket that of a user without rights, and small, before it connects.
func asNobody(_, _ string, c syscall.RawConn) error {
	const nobody, buffer = 65534, 4 << 10
	var failed error
	return errors.Join(c.Control(func(fd uintptr) {
		failed = errors.Join(unix.Fchown(int(fd), nobody, nobody), unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, buffer))
	}), failed)
}

// healthy asks like the kubelet: once, with a connection of its own.
func (w *trial) healthy(url string) (took time.Duration) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), patience)
	defer cancel()
	began := time.Now()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		w.Fatal(err)
	}
	client := http.Client{Transport: &http.Transport{DialContext: w.lab.Node1.Dial, DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		w.Errorf("%s: %v", url, err)
		return 0
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		w.Errorf("%s: %s", url, response.Status)
	}
	return time.Since(began)
}

// TestKernelHeldConnections lets others hold 100 connections to each of the proxy's servers, while it may have 64 file descriptors. The
// kubelet is answered, and deleted rules are repaired.
func TestKernelHeldConnections(t *testing.T) {
	w := newTrial(t)
	kubeproxy.MustWrite(filepath.Join(w.dir, "checked.yaml"), checkedService())
	w.limited(64)
	for _, mode := range []config.ProxyMode{config.ProxyModeNFTables, config.ProxyModeIPTables} {
		t.Run(string(mode), func(t *testing.T) {
			w := &trial{T: t, lab: w.lab, program: w.program, dir: w.dir}
			w.proxy(mode)
			node := w.lab.Node1.IPv4.String()
			service := netns.Probe{From: w.lab.Node1.Host, To: netip.MustParseAddrPort("10.96.0.10:80"), Protocol: netns.TCP}
			w.until(service, netns.Answered, w.endpoint().Name)
			w.eventuallyOpen(node, checkPort)
			t.Logf("%d descriptors before", w.descriptors())
			for _, h := range []*holders{
				{from: w.lab.Client, to: net.JoinHostPort(node, "10256"), path: "/healthz", reading: true, again: again},
				{from: w.lab.Client, to: net.JoinHostPort(node, strconv.Itoa(checkPort)), path: "/", reading: true, again: again},
				{from: w.lab.Node1.Host, to: "127.0.0.1:10249", path: "/metrics", reading: true, again: again},
			} {
				t.Cleanup(h.hold(t.Context(), 100))
			}
			time.Sleep(time.Second) // until all have connected
			most := 0
			for range 3 {
				if out, err := w.lab.Node1.Command("nft", "flush", "ruleset").CombinedOutput(); err != nil {
					t.Fatalf("%v: %s", err, out)
				}
				w.until(service, netns.Answered, w.endpoint().Name)
				most = max(most, w.descriptors())
				for _, url := range []string{"http://127.0.0.1:10256/healthz", "http://" + node + ":10256/livez",
					fmt.Sprintf("http://%s:%d/", node, checkPort), "http://127.0.0.1:10249/proxyMode"} {
					w.healthy(url)
				}
				if t.Failed() {
					break
				}
			}
			t.Logf("at most %d descriptors meanwhile, with those of programs that it had started", most)
		})
	}
}

// eventuallyOpen waits until the node listens on a TCP port.
func (w *trial) eventuallyOpen(node string, port int) {
	w.Helper()
	for began := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		connection, err := w.lab.Client.Dial(w.Context(), "tcp", net.JoinHostPort(node, strconv.Itoa(port)))
		if err == nil {
			connection.Close()
			return
		}
		if time.Since(began) > patience {
			w.Fatalf("port %d: %v after %s", port, err, patience)
		}
	}
}

// descriptors returns how many the proxy has open.
func (w *trial) descriptors() int {
	w.Helper()
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", w.running.Process.Pid))
	if err != nil {
		w.Fatal(err)
	}
	return len(entries)
}

// resident returns the memory of the proxy in MB.
func (w *trial) resident() int {
	w.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", w.running.Process.Pid))
	if err != nil {
		w.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if value, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kB, err := strconv.Atoi(strings.Fields(value)[0])
			if err != nil {
				w.Fatal(err)
			}
			return kB >> 10
		}
	}
	w.Fatal("no VmRSS")
	return 0
}

// TestKernelManyConnections holds 5,000 connections from one source to the health server: the kubelet is answered, and the proxy's
// memory stays.
func TestKernelManyConnections(t *testing.T) {
	const connections, again = 5000, 5 * time.Second
	w := newTrial(t)
	w.proxy(config.ProxyModeNFTables)
	w.healthy("http://127.0.0.1:10256/healthz")
	before, free := w.resident(), w.descriptors()
	h := &holders{from: w.lab.Client, to: net.JoinHostPort(w.lab.Node1.IPv4.String(), "10256"), path: "/healthz", reading: true, again: again}
	began := time.Now()
	defer h.hold(t.Context(), connections)()
	var longest time.Duration
	for range 50 {
		longest = max(longest, w.healthy("http://127.0.0.1:10256/healthz"))
		time.Sleep(50 * time.Millisecond)
	}
	after, held := w.resident(), w.descriptors()
	t.Logf("%s: %d connections from one source; the slowest of 50 probes took %s; resident memory %d MB, before %d MB; %d descriptors, before %d",
		time.Since(began).Round(time.Millisecond), connections, longest.Round(time.Millisecond), after, before, held, free)
	if held-free > 500 {
		t.Errorf("%d connections are open", held-free)
	}
}

// bigService returns the manifests of a Service with 20,000 endpoints, whose description is larger than the kernel's buffers.
func bigService() string {
	var objects strings.Builder
	objects.WriteString(clusters.Service("m/big", "clusterIP: 10.96.0.40, ports: [{name: http, port: 80}]"))
	for slice := range 20 {
		var endpoints []string
		for i := range 1000 {
			endpoints = append(endpoints, fmt.Sprintf("{addresses: [10.%d.%d.%d], nodeName: node2}", 200+slice, i/250, 1+i%250))
		}
		objects.WriteString(clusters.Slice("m/big", fmt.Sprint("with-a-name-as-long-as-its-author-likes-", slice), "{name: http, port: 8080}", endpoints...))
	}
	return objects.String()
}

// TestKernelReadersThatDoNotRead lets processes without rights request the description of a large Service, its page and the metrics, and
// not read them. An operator's command and the page answer meanwhile.
func TestKernelReadersThatDoNotRead(t *testing.T) {
	w := newTrial(t)
	kubeproxy.MustWrite(filepath.Join(w.dir, "big.yaml"), bigService())
	w.proxy(config.ProxyModeNFTables)
	const api, page = "/api/v1alpha1/services/m/big", "/services/m/big"
	for _, test := range []struct {
		name  string
		n     int
		paths []string
	}{{"none", 0, nil}, {"4", 4, []string{api}}, {"100", 100, []string{api}}, {"100 of each", 100, []string{api, page, "/metrics"}}} {
		t.Run(test.name, func(t *testing.T) {
			w := &trial{T: t, lab: w.lab, program: w.program, dir: w.dir, running: w.running}
			for _, path := range test.paths {
				h := &holders{from: w.lab.Node1.Host, to: "127.0.0.1:10249", path: path, again: again}
				t.Cleanup(h.hold(t.Context(), test.n))
			}
			time.Sleep(time.Second) // until all have connected
			for range 3 {
				began := time.Now()
				w.prints(0, []string{"10.200.0.1:8080"}, "service", "describe", "m/big", "-o", "json", "--request-timeout", patience.String())
				t.Logf("the command took %s, resident memory %d MB", time.Since(began).Round(time.Millisecond), w.resident())
			}
			began := time.Now()
			w.healthy("http://127.0.0.1:10249" + page)
			t.Logf("the page took %s", time.Since(began).Round(time.Millisecond))
		})
	}
}

// TestKernelMetricsGuard asks the pages of the metrics address through a rebound name and from a pod, with profiling on.
func TestKernelMetricsGuard(t *testing.T) {
	t.Parallel()
	w := newTrial(t)
	w.proxy(config.ProxyModeNFTables, "--metrics-bind-address", "0.0.0.0:10249", "--profiling")
	node := w.lab.Node1.IPv4.String() + ":10249"
	for _, test := range []struct {
		from                   *netns.Host
		to, host, method, path string
		want                   int
	}{
		{w.lab.Node1.Host, "127.0.0.1:10249", "attacker.example:10249", http.MethodGet, "/metrics", http.StatusMisdirectedRequest},
		{w.lab.Node1.Host, "127.0.0.1:10249", "attacker.example:10249", http.MethodGet, "/configz", http.StatusMisdirectedRequest},
		{w.lab.Node1.Host, "127.0.0.1:10249", "attacker.example:10249", http.MethodGet, "/proxyMode", http.StatusMisdirectedRequest},
		{w.lab.Node1.Host, "127.0.0.1:10249", "attacker.example:10249", http.MethodPut, "/debug/flags/v", http.StatusMisdirectedRequest},
		{w.lab.Node1.Host, node, "attacker.example:10249", http.MethodPut, "/debug/flags/v", http.StatusMisdirectedRequest},
		{w.lab.Node1.Pods[0], node, node, http.MethodPut, "/debug/flags/v", http.StatusForbidden},
		{w.lab.Node1.Pods[0], node, node, http.MethodGet, "/debug/pprof/trace", http.StatusForbidden},
		{w.lab.Node2.Host, node, "node1.corp.example:10249", http.MethodGet, "/metrics", http.StatusOK},
		{w.lab.Node1.Host, "127.0.0.1:10249", "node1", http.MethodGet, "/metrics", http.StatusOK},
		{w.lab.Node1.Host, "127.0.0.1:10249", "localhost:31000", http.MethodPut, "/debug/flags/v", http.StatusOK},
	} {
		request, err := http.NewRequestWithContext(t.Context(), test.method, "http://"+test.to+test.path, strings.NewReader("2"))
		if err != nil {
			t.Fatal(err)
		}
		request.Host = test.host
		client := http.Client{Transport: &http.Transport{DialContext: test.from.Dial, DisableKeepAlives: true}}
		response, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != test.want {
			t.Errorf("%s %s at %s as %s from %s: %s, want %d", test.method, test.path, test.to, test.host, test.from.Name, response.Status, test.want)
		}
	}
}
