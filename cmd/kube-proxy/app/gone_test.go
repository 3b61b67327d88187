//go:build linux

package app

import (
	"bufio"
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/config"
	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// TestKernelResetGoneEndpoints keeps TCP connections open while their endpoints terminate and go, in each mode.
func TestKernelResetGoneEndpoints(t *testing.T) {
	t.Parallel()
	for mode, open := range opens(t) {
		t.Run(string(mode), func(t *testing.T) {
			w := newFlowWorld(t, open, &atomic.Int64{})
			w.all(t, (*udpWorld).goneEndpoint)
			if mode == config.ProxyModeNFTables {
				w.all(t, (*udpWorld).lastLocal)
			}
			for _, family := range netns.Families() {
				t.Run("own socket "+family.String(), func(t *testing.T) {
					w := *w
					w.T = t
					w.ownSocket(netip.AddrPortFrom(netip.MustParseAddr(udpServiceIPs[family/6]), 53), w.lab.Node2.Pods[0], w.lab.Node1.Pods[0])
				})
			}
		})
	}
}

// client is a TCP client that knows nothing of ICMP errors: as most are.
type client struct {
	net.Conn
	*bufio.Reader
}

// dial opens a connection that is answered by one of the pods.
func (w *udpWorld) dial(probe netns.Probe, pod *netns.Host) *client {
	w.Helper()
	w.open(probe, pod) // until the rules are in force
	conn, err := probe.From.Dial(w.Context(), "tcp", probe.To.String())
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { conn.Close() })
	c := &client{conn, bufio.NewReader(conn)}
	if err := c.ask(""); err != nil {
		w.Fatal(err)
	}
	return c
}

// ask sends a line, unless it is empty, and waits for the answer.
func (c *client) ask(line string) error {
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	if line != "" {
		if _, err := c.Write([]byte(line + "\n")); err != nil {
			return err
		}
	}
	_, err := c.ReadString('\n')
	return err
}

// isReset makes an endpoint die, and wants the connection's next packet to be reset when a change has made it leave.
func (w *udpWorld) isReset(c *client, how string, dies *netns.Host, leaves func()) {
	w.Helper()
	nft := func(rules string) {
		program := dies.Command("nft", "-f", "-")
		program.Stdin = strings.NewReader(rules)
		if out, err := program.CombinedOutput(); err != nil {
			w.Fatalf("nft: %v\n%s", err, out)
		}
	}
	nft("table inet dead { chain i { type filter hook input priority 0; tcp dport 5353 drop; }; chain o { type filter hook output priority 0; tcp sport 5353 drop; }; }")
	defer nft("delete table inet dead")
	began, before := time.Now(), w.resets.Load()
	leaves()
	if err := c.ask("more"); !errors.Is(err, unix.ECONNRESET) {
		w.Fatalf("%s: after %s: %v, want: %v", how, time.Since(began), err, unix.ECONNRESET)
	}
	w.Logf("%s: reset after %s", how, time.Since(began).Round(time.Millisecond))
	w.wait("the reset to be counted", func() bool { return w.resets.Load() > before })
}

// goneEndpoint resets connections when their endpoint is gone, with others left and without, and not before.
func (w *udpWorld) goneEndpoint(probe netns.Probe, a, b *netns.Host) {
	probe.Protocol = netns.TCP
	w.dead = nil
	w.serve(a)
	c := w.dial(probe, a)
	w.dead = a
	w.serve(a, b)
	w.open(probe, b)
	for range 10 {
		if err := c.ask("more"); err != nil {
			w.Fatalf("%s while %s terminates: %v", probe, a.Name, err)
		}
	}
	w.isReset(c, "another endpoint is left", a, func() { w.serve(b) })
	c = w.dial(probe, b)
	w.serve(a, b)
	w.isReset(c, "no endpoint is left", b, func() { w.serve() })
	w.dead = nil
	w.serve(b)
	c = w.dial(probe, b)
	w.unserve() // the endpoint may live: the connection goes on
	probe.Timeout = 100 * time.Millisecond
	w.wait("the Service to be gone", func() bool { return probe.Send().Verdict != netns.Answered })
	if err := c.ask("more"); err != nil {
		w.Errorf("after its Service was deleted: %v", err)
	}
	w.serve(b)
}

// lastLocal resets a connection whose endpoint was the last one on this node, with traffic policy Local. New connections are dropped.
func (w *udpWorld) lastLocal(probe netns.Probe, a, b *netns.Host) {
	probe.Protocol, probe.Timeout = netns.TCP, 100*time.Millisecond
	local := func(s *corev1.Service) {
		policy := corev1.ServiceInternalTrafficPolicyLocal
		s.Spec.ExternalTrafficPolicy, s.Spec.InternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal, &policy
	}
	w.dead = nil
	w.serveAs(local, a)
	c := w.dial(probe, a)
	w.isReset(c, "no endpoint is left here", a, func() { w.serveAs(local, b) })
	if answer := probe.Send(); answer.Verdict != netns.Dropped {
		w.Errorf("a new connection: %s", answer)
	}
}

// ownSocket aborts a connection of the node itself that waits for data, when its endpoint is gone.
func (w *udpWorld) ownSocket(to netip.AddrPort, a, b *netns.Host) {
	w.dead = nil
	w.serve(a)
	c := w.dial(netns.Probe{From: w.lab.Node1.Host, To: to, Protocol: netns.TCP}, a)
	ended := make(chan error, 1)
	began := time.Now()
	go func() { ended <- c.ask("") }()
	w.serve(b)
	ctx, cancel := context.WithTimeout(w.Context(), patience)
	defer cancel()
	select {
	case err := <-ended:
		if !errors.Is(err, unix.ECONNABORTED) {
			w.Errorf("the idle connection ended with %v, want %v", err, unix.ECONNABORTED)
		}
		w.Logf("the idle connection ended after %s: %v", time.Since(began).Round(time.Millisecond), err)
	case <-ctx.Done():
		w.Errorf("the idle connection of the node itself is still open after %s", patience)
	}
}

// TestKernelSCTPAssociations lets an SCTP client begin anew, from the same port, while its endpoints terminate and go, in each mode.
func TestKernelSCTPAssociations(t *testing.T) {
	t.Parallel()
	for mode, open := range opens(t) {
		t.Run(string(mode), func(t *testing.T) { newFlowWorld(t, open, new(atomic.Int64)).all(t, (*udpWorld).associations) })
	}
}

// associations sends INITs of one client, each of which keeps its entry alive: to the endpoint that it had, while that is listed, and
// then to another one.
func (w *udpWorld) associations(probe netns.Probe, a, b *netns.Host) {
	probe.Protocol = netns.SCTP
	w.dead = nil
	w.serve(a)
	flow, _ := w.open(probe, a)
	w.dead = a
	w.serve(a, b)
	w.open(probe, b)
	w.moves(flow, a) // it stays there
	w.serve(b)
	w.moves(flow, b)
	w.serve()
	w.refused(flow)
	w.dead = nil
	w.serve(a)
	w.moves(flow, a)
	w.unserve()
	w.serve(b) // created again
	w.moves(flow, b)
	w.unserve()
	w.wait("the Service to be gone", func() bool { return probe.Send().Verdict != netns.Answered })
}
