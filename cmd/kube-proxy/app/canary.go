//go:build linux

package app

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/status/v1alpha1"
	"github.com/seed-11a05479/kube-proxy/pkg/check"
	"github.com/seed-11a05479/kube-proxy/pkg/inspect/packets"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/cputime"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/netif"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft/trace"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/selfcall"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/canary"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/metrics"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// canary makes the observer that tries the rules, and lets plans have its routes; nil unless it is wanted.
func (p *process) canary(recorder proxy.Recorder, measured *metrics.Metrics) (*canary.Canary, error) {
	if p.opts.canary == canary.None {
		return nil, nil
	}
	addrs := []netip.Addr{}
	for _, family := range p.families.All {
		addr := netip.IPv6Loopback()
		if family == cluster.IPv4 {
			addr = netip.AddrFrom4([4]byte{127, 0, 0, 1})
		}
		addrs = append(addrs, addr)
	}
	listeners, err := selfcall.Listen(addrs...)
	if err != nil {
		return nil, err
	}
	p.Planning.Canary = listeners.Addresses()
	checker := &check.Checker{Stage: check.During, Host: &check.Linux{}, Node: check.Node{Families: p.families.All}}
	return canary.New(canary.Config{
		Families: p.families.All, Node: p.Name, Caller: listeners, Unrouted: selfcall.Unrouted, Trace: p.traceCanary, Measure: cputime.Measure,
		Recorder: recorder, Broken: measured.DataplaneBroken,
		Check: func(ctx context.Context, group string) (failed []string) {
			others := slices.DeleteFunc(check.Groups(), func(g string) bool { return g == group })
			for _, result := range checker.Run(ctx, others...) {
				if result.Status == check.Fail {
					failed = append(failed, fmt.Sprintf("%s (%s)", result.Message, strings.TrimSuffix(result.Fix, ".")))
				}
			}
			return failed
		},
	}), nil
}

// WhyNotForwarded returns why the kernel does not send a packet on; "" if that is not known.
func WhyNotForwarded(h *trace.Headers) string {
	return netif.Kernel{}.WhyNotForwarded(h.Source.Addr(), h.Destination.Addr(), h.In, h.Mark)
}

// traceCanary traces the first packets of the connections that connect opens to routes, and returns why they fail. It always calls connect.
func (p *process) traceCanary(ctx context.Context, routes []*plan.Route, connect func()) (why map[cluster.Family]string, err error) {
	tracer, endpoints, err := p.openTrace(ctx, routes)
	if err != nil {
		connect()
		return nil, err
	}
	why = map[cluster.Family]string{}
	follow := packets.Trace{Tracer: tracer, Names: packets.NewNames(nil), Why: WhyNotForwarded, Count: len(routes), Show: func(packet *v1alpha1.PacketTrace) error {
		endpoint := endpoints[packet.Destination]
		family := cluster.FamilyOf(endpoint.Addr())
		why[family] = packets.Cause(packet, endpoint)
		if present, err := p.mode.Present(ctx, family); packet.TranslatedDestination == "" && err == nil && !present {
			why[family] += fmt.Sprintf("; there are no rules of mode %s", p.cfg.EffectiveMode())
		}
		return nil
	}}
	var connected sync.WaitGroup
	connected.Go(connect)
	limited, cancel := context.WithTimeout(ctx, canary.Patience)
	defer cancel()
	_, err = follow.Follow(limited)
	connected.Wait()
	return why, errors.Join(err, tracer.Close())
}

// openTrace begins a trace of connections to routes, whose endpoints it returns by their addresses.
func (p *process) openTrace(ctx context.Context, routes []*plan.Route) (trace.Tracer, map[string]netip.AddrPort, error) {
	if err := p.mode.Untraceable(ctx); err != nil {
		return nil, nil, err
	}
	filter := trace.Filter{PerSecond: packets.PerSecond, Opening: true}
	endpoints := map[string]netip.AddrPort{}
	for _, route := range routes {
		to := netip.AddrPortFrom(route.Frontend.Addr, route.Frontend.Port)
		filter.To = append(filter.To, trace.Destination{Addr: to.Addr(), Protocol: unix.IPPROTO_TCP, Port: to.Port()})
		endpoints[to.String()] = route.Pool.Endpoints[0]
	}
	tracer, err := trace.Open(ctx, filter)
	return tracer, endpoints, err
}
