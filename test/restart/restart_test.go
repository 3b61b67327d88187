//go:build linux

package restart

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/seed-11a05479/kube-proxy/test/kubeproxy"
	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// perSecond is the number of new connections.
const perSecond = 1000

// pod is an endpoint.
type pod struct {
	host *netns.Host
	node string
}

// service writes a Service with the given pods as endpoints, with IPv6 if it has such an address; it replaces the file
// atomically.
func service(file string, clusterIPs []netip.Addr, nodePort uint16, pods []pod) error {
	var b strings.Builder
	fmt.Fprintf(&b, `apiVersion: v1
kind: Service
metadata: {name: web-%[1]d, namespace: default}
spec:
  clusterIPs: ["%[2]s"]
  ipFamilies: [%[3]s]
  ports: [{name: http, port: 80, nodePort: %[1]d}]
  type: NodePort
`, nodePort, strings.Join(texts(clusterIPs), `","`), strings.Join([]string{"IPv4", "IPv6"}[:len(clusterIPs)], ","))
	for _, clusterIP := range clusterIPs {
		family := netns.FamilyOf(clusterIP)
		fmt.Fprintf(&b, `---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-%[1]d-%[2]s, namespace: default, labels: {kubernetes.io/service-name: web-%[1]d}}
addressType: %[3]s
ports: [{name: http, port: 8080}]
endpoints:
`, nodePort, strings.ToLower(family.String()), family)
		for _, pod := range pods {
			fmt.Fprintf(&b, "- {addresses: [\"%s\"], nodeName: %s}\n", pod.host.Addr(family), pod.node)
		}
	}
	if err := os.WriteFile(file+".new", []byte(b.String()), 0o600); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}

// texts returns addresses as text.
func texts(addresses []netip.Addr) (all []string) {
	for _, a := range addresses {
		all = append(all, a.String())
	}
	return all
}

func TestMain(m *testing.M) {
	kubeproxy.Main(m)
}

// trial is a lab in which kube-proxy serves two Services whose endpoints change continuously.
type trial struct {
	t            *testing.T
	lab          *netns.Lab
	program, dir string
	env          []string // of kube-proxy; nil means that of the test
	args         []string // more of kube-proxy's flags
	dual         bool     // the Services have both families
	pods         []pod
	log          bytes.Buffer
	proxy        *netns.Cmd
	random       *rand.Rand
}

// newTrial creates everything except kube-proxy, and returns a probe for each address of the Services.
func newTrial(t *testing.T) (*trial, []netns.Probe) {
	r := &trial{t: t, lab: netns.Start(t, netns.Options{ClientRoutes: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("fd00:10:96::/48")}}),
		program: kubeproxy.Path(t), dir: t.TempDir(), random: rand.New(rand.NewPCG(rand.Uint64(), 0))}
	for _, node := range r.lab.Nodes() {
		for _, host := range node.Pods {
			r.pods = append(r.pods, pod{host, node.Name})
			if _, err := host.Serve(netns.TCP, 8080); err != nil {
				t.Fatal(err)
			}
		}
	}
	var probes []netns.Probe
	for i := range 2 {
		r.write(i, r.pods)
		probes = append(probes, r.probes(i, netns.IPv4)...)
	}
	return r, probes
}

// probes returns one for each address of the nth Service in a family.
func (r *trial) probes(n int, family netns.Family) []netns.Probe {
	// A connection that is slow because the machine is busy must not count as failed.
	const patience = 900 * time.Millisecond
	clusterIPs, nodePort := address(n)
	return []netns.Probe{
		{From: r.lab.Node1.Pods[1], To: netip.AddrPortFrom(clusterIPs[family], 80), Timeout: patience},
		{From: r.lab.Client, To: netip.AddrPortFrom(r.lab.Node1.Addr(family), nodePort), Timeout: patience},
	}
}

// start starts kube-proxy.
func (r *trial) start(mode string) {
	r.t.Helper()
	r.proxy = r.lab.Node1.Command(r.program, append([]string{"--manifests", r.dir, "--proxy-mode", mode, "--hostname-override", "node1",
		"--cluster-cidr", "10.244.0.0/16,fd00:10:244::/48", "--healthz-bind-address", "127.0.0.1:10256", "--metrics-bind-address", "127.0.0.1:10249"}, r.args...)...)
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

// address returns the nth Service's cluster IPs and node port.
func address(n int) (map[netns.Family]netip.Addr, uint16) {
	return map[netns.Family]netip.Addr{
		netns.IPv4: netip.AddrFrom4([4]byte{10, 96, 0, byte(10 + n)}),
		netns.IPv6: netip.MustParseAddr(fmt.Sprintf("fd00:10:96::%x", 10+n)),
	}, uint16(30080 + n)
}

// write writes the nth Service with some endpoints.
func (r *trial) write(n int, pods []pod) {
	r.t.Helper()
	clusterIPs, nodePort := address(n)
	families := netns.Families()[:1]
	if r.dual {
		families = netns.Families()
	}
	var addresses []netip.Addr
	for _, family := range families {
		addresses = append(addresses, clusterIPs[family])
	}
	if err := service(r.file(n), addresses, nodePort, pods); err != nil {
		r.t.Fatal(err)
	}
}

// file is the nth Service's.
func (r *trial) file(n int) string { return filepath.Join(r.dir, fmt.Sprint(n, ".yaml")) }

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
