//go:build linux

package restart

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/seed-11a05479/kube-proxy/test/netns"
)

const (
	// soakDefault is the duration of a soak without the variable SOAK.
	soakDefault = 10 * time.Second
	// soaked is the number of Services that come and go.
	soaked = 40
	// goroutineSlack is how many goroutines there may be more: those of the measuring request, and of Go itself. A leak would
	// be one for each of hundreds of changes.
	goroutineSlack = 3
	// heapSlack is by how much the heap may differ between two moments with the same objects: buffers and caches are kept.
	heapSlack = 8 << 20
)

// TestKernelSoak lets Services with TCP and UDP ports come, change and go while clients connect, in both modes. Afterwards, with
// all of them removed, the proxy and the kernel hold what they held before: goroutines, file descriptors, rules, the heap
// within a few megabytes, no remembered client (session affinity), and no UDP flow that the kernel still sends to an endpoint.
// It prints how fast each of them grew meanwhile. SOAK is the duration ("2h"); both modes run at the same time.
func TestKernelSoak(t *testing.T) {
	t.Parallel()
	duration := soakDefault
	if text := os.Getenv("SOAK"); text != "" {
		var err error
		if duration, err = time.ParseDuration(text); err != nil {
			t.Fatalf("SOAK: %v", err)
		}
	}
	for _, mode := range []string{nftables, iptables} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			soak(t, mode, duration)
		})
	}
}

func soak(t *testing.T, mode string, duration time.Duration) {
	r, probes := newTrial(t)
	r.args = []string{"--profiling", "--iptables-min-sync-period", "100ms"}
	for _, timeout := range []string{"nf_conntrack_udp_timeout", "nf_conntrack_udp_timeout_stream"} { // flows end when they are deleted
		if err := r.lab.Node1.SetSysctl("netfilter/"+timeout, "300"); err != nil {
			t.Fatal(err)
		}
	}
	r.start(mode)
	defer func() {
		if err := r.proxy.Kill(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Log(r.log.String())
		}
	}()
	r.serves(probes)
	for n := range soaked { // what is created when it is first needed is not a leak
		r.soakService(n)
	}
	r.settle(func(u usage) bool { return strings.Contains(u.rules, soakedIP(soaked-1).String()) })
	before := r.emptied()

	stream := probes[0].Stream(t.Context(), 100)
	var samples []usage
	began, sampled, changes, most := time.Now(), time.Time{}, 0, usage{}
	unseen := func() bool {
		return (most.clients == 0 || most.udpFlows == 0) && time.Since(began) < duration+time.Minute
	}
	for time.Since(began) < duration || unseen() { // on a busy machine, some seconds may show nothing
		n := r.random.IntN(soaked)
		if r.random.IntN(3) == 0 {
			r.soakRemove(n)
		} else {
			r.soakService(n)
		}
		changes++
		from := []*netns.Host{r.lab.Node1.Pods[0], r.lab.Node1.Pods[1], r.lab.Client}[changes%3]
		netns.Probe{From: from, To: netip.AddrPortFrom(soakedIP(r.random.IntN(soaked)), 53), Protocol: netns.UDP, Timeout: time.Millisecond}.Send()
		time.Sleep(20 * time.Millisecond)
		if time.Since(sampled) > duration/20 {
			samples, sampled = append(samples, r.usage()), time.Now()
			last := samples[len(samples)-1]
			most.clients, most.udpFlows = max(most.clients, last.clients), max(most.udpFlows, last.udpFlows)
		}
	}
	if tally := stream.Stop(); tally.Failed() > 0 {
		t.Errorf("%s; first %s", tally, tally.Failures[0])
	}
	if most.clients == 0 || most.udpFlows == 0 {
		t.Errorf("the soak shows nothing: at most %d remembered clients, %d UDP flows to endpoints", most.clients, most.udpFlows)
	}
	after := r.emptied()
	warm := len(samples) / 4 // what a process needs for its first minutes is not growth
	t.Logf("%s: %d changes in %v; growth an hour, without the first quarter: %s", mode, changes, duration, slopes(samples[warm:], duration*3/4))
	t.Logf("before: %s; at most %d clients, %d UDP flows; after: %s", before, most.clients, most.udpFlows, after)
	if after.clients != 0 || after.udpFlows != 0 || after.goroutines > before.goroutines+goroutineSlack || after.descriptors > before.descriptors || after.heap > before.heap+heapSlack || after.rules != before.rules {
		t.Errorf("something is left:\nbefore %s\n%s\nafter %s\n%s", before, before.rules, after, after.rules)
	}
}

func soakedIP(n int) netip.Addr { return netip.AddrFrom4([4]byte{10, 96, 9, byte(1 + n)}) }

// soakService writes the nth Service with endpoints at random.
func (r *trial) soakService(n int) {
	r.t.Helper()
	var b strings.Builder
	affinity := []string{"None", "ClientIP"}[r.random.IntN(2)]
	fmt.Fprintf(&b, `apiVersion: v1
kind: Service
metadata: {name: soak-%[1]d, namespace: default}
spec: {clusterIP: %[2]s, type: NodePort, sessionAffinity: %[3]s, ports: [{name: http, port: 80, nodePort: %[4]d}, {name: dns, port: 53, nodePort: %[4]d, protocol: UDP}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: soak-%[1]d, namespace: default, labels: {kubernetes.io/service-name: soak-%[1]d}}
addressType: IPv4
ports: [{name: http, port: 8080}, {name: dns, port: 5353, protocol: UDP}]
endpoints:
`, n, soakedIP(n), affinity, 31000+n)
	for range r.random.IntN(10) {
		fmt.Fprintf(&b, "- {addresses: [10.244.1.%d], nodeName: node1}\n", 2+r.random.IntN(200))
	}
	file := filepath.Join(r.dir, fmt.Sprintf("soak-%d.yaml", n))
	if err := os.WriteFile(file+".new", []byte(b.String()), 0o600); err != nil {
		r.t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		r.t.Fatal(err)
	}
}

// soakRemove removes the nth Service, if it is there.
func (r *trial) soakRemove(n int) {
	r.t.Helper()
	if err := os.Remove(filepath.Join(r.dir, fmt.Sprintf("soak-%d.yaml", n))); err != nil && !os.IsNotExist(err) {
		r.t.Fatal(err)
	}
}

// emptied removes all Services that come and go, and returns what the proxy holds when it holds the least: connections and
// timers of what has just ended take a moment.
func (r *trial) emptied() usage {
	r.t.Helper()
	for n := range soaked {
		r.soakRemove(n)
	}
	r.write(0, r.pods)
	r.write(1, r.pods)
	last := r.settle(func(u usage) bool {
		return !strings.Contains(u.rules, "soak-") && !strings.Contains(u.rules, "10.96.9.") && u.clients+u.udpFlows == 0
	})
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		now := r.usage()
		last.goroutines, last.descriptors, last.heap = min(last.goroutines, now.goroutines), min(last.descriptors, now.descriptors), min(last.heap, now.heap)
		last.rules = now.rules
	}
	return last
}

// settle waits until the condition holds.
func (r *trial) settle(until func(usage) bool) usage {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), 2*time.Minute)
	defer cancel()
	for {
		u := r.usage()
		if until(u) {
			return u
		}
		select {
		case <-ctx.Done():
			r.t.Fatalf("the rules do not settle:\n%s\n%s", u.rules, r.log.String())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// changing matches what differs between two listings of the same rules: packet counters.
var changing = regexp.MustCompile(`counter packets \d+ bytes \d+|\[\d+:\d+\]|^#.*|expires \S+`)

// usage measures the proxy.
func (r *trial) usage() usage {
	r.t.Helper()
	page := r.get("/metrics")
	heap := r.get("/debug/pprof/heap?gc=1&debug=1")
	listing := r.output("{ nft list ruleset; iptables-legacy-save; } 2>/dev/null")
	tracked := r.output("cat /proc/net/xt_recent/* 2>/dev/null; echo flows $(cat /proc/sys/net/netfilter/nf_conntrack_count); conntrack -L --proto udp 2>/dev/null")
	rules := strings.Split(changing.ReplaceAllString(listing, ""), "\n")
	slices.Sort(rules) // the order of chains depends on history
	return usage{
		goroutines: number(r.t, page, "go_goroutines"), descriptors: number(r.t, page, "process_open_fds"),
		resident: number(r.t, page, "process_resident_memory_bytes"), heap: number(r.t, heap, "# HeapAlloc ="),
		clients: strings.Count(listing, "expires ") + strings.Count(tracked, "last_seen:"), flows: number(r.t, tracked, "flows"), udpFlows: translated(tracked),
		rules: strings.Join(rules, "\n"),
	}
}

// output runs a command of the shell in node1 and returns its standard output.
func (r *trial) output(script string) string {
	r.t.Helper()
	out, err := r.lab.Node1.Command("sh", "-c", script).Output()
	if err != nil {
		r.t.Fatal(err)
	}
	return string(out)
}

// translated counts the flows to Services that come and go whose packets are sent to an endpoint, in a listing of conntrack:
// replies have another source.
func translated(listing string) (flows int) {
	for line := range strings.Lines(listing) {
		if strings.Count(line, "dst=10.96.9.") == 1 && !strings.Contains(line, "src=10.96.9.") {
			flows++
		}
	}
	return flows
}

// get requests a page of the proxy.
func (r *trial) get(path string) string {
	r.t.Helper()
	client := http.Client{Transport: &http.Transport{DialContext: r.lab.Node1.Dial, DisableKeepAlives: true}, Timeout: time.Minute}
	response, err := client.Get("http://127.0.0.1:10249" + path)
	if err != nil {
		r.t.Fatal(err)
	}
	defer response.Body.Close()
	page, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		r.t.Fatalf("%s: %s, %v", path, response.Status, err)
	}
	return string(page)
}

// number returns the number after a name at the beginning of a line.
func number(t *testing.T, page, name string) int {
	t.Helper()
	found := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(name) + ` (\S+)`).FindStringSubmatch(page)
	if found == nil {
		t.Fatalf("no %s in %.300s", name, page)
	}
	value, err := strconv.ParseFloat(found[1], 64)
	if err != nil {
		t.Fatal(err)
	}
	return int(value)
}
