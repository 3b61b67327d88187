package packets

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/status/v1alpha1"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft/trace"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// Causes finds out why connections fail.
type Causes struct {
	// Open begins a trace. Why is that of Trace.
	Open func(context.Context, trace.Filter) (trace.Tracer, error)
	Why  func(*trace.Headers) string
}

// Of traces the first packets of TCP connections to addresses, each with one endpoint, which connect makes, until ctx ends. It returns why
// each fails, "" if none of its packets was seen, in their order. connect is called in any case.
func (c Causes) Of(ctx context.Context, to, endpoints []netip.AddrPort, connect func()) ([]string, error) {
	causes := make([]string, len(to))
	filter := trace.Filter{PerSecond: PerSecond, Opening: true}
	for _, address := range to {
		filter.To = append(filter.To, trace.Destination{Addr: address.Addr(), Protocol: byte(cluster.TCP), Port: address.Port()})
	}
	tracer, err := c.Open(ctx, filter)
	if err != nil {
		connect()
		return causes, err
	}
	follow := Trace{Tracer: tracer, Names: NewNames(nil), Why: c.Why, Count: len(to), Show: func(p *v1alpha1.PacketTrace) error {
		for i := range to {
			if p.Destination == to[i].String() {
				causes[i] = cause(p, endpoints[i])
			}
		}
		return nil
	}}
	var connected sync.WaitGroup
	connected.Go(connect)
	_, err = follow.Follow(ctx)
	connected.Wait()
	return causes, errors.Join(err, tracer.Close())
}

// cause describes why a connection whose only endpoint is known fails, by the trace of its first packet.
func cause(p *v1alpha1.PacketTrace, endpoint netip.AddrPort) string {
	passed := p.Verdict == v1alpha1.PacketSent || p.Verdict == v1alpha1.PacketDelivered
	switch met := others(p); {
	case passed && p.TranslatedDestination == endpoint.String():
		return fmt.Sprintf("its first packet was %s, but no answer came back", p.Reason)
	case passed && p.TranslatedDestination != "":
		return fmt.Sprintf("its first packet was %s, which is not the endpoint %s%s", p.Reason, endpoint, met)
	case passed:
		return "its first packet was " + p.Reason + "; its destination was not translated" + met
	case p.Verdict == v1alpha1.PacketVanished:
		return "its first packet was " + p.Reason + met
	default:
		return "its first packet was " + p.Reason
	}
}

// others names the chains of other programs in which a packet has matched rules; "" if there are none.
func others(p *v1alpha1.PacketTrace) string {
	var all []string
	for _, c := range p.Chains {
		for _, s := range c.Steps {
			name := fmt.Sprintf("%s %s, chain %s", c.Family, c.Table, s.Chain)
			if s.Rule != 0 && !isOurs(c.Family, c.Table, s.Chain) && !isOurs(c.Family, c.Table, s.To) && !slices.Contains(all, name) {
				all = append(all, name)
			}
		}
	}
	if len(all) == 0 {
		return ""
	}
	return "; rules of other programs that it matched: table " + strings.Join(all, "; table ")
}
