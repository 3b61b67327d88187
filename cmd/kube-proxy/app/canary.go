//go:build linux

package app

import (
	"context"

	"k8s.io/klog/v2"

	"github.com/seed-11a05479/kube-proxy/pkg/check"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/host"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/netif"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft/trace"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/selfcall"
	"github.com/seed-11a05479/kube-proxy/pkg/packets"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/metrics"
)

// canary makes the observer that tries the rules, and lets plans have its routes; nil unless it is wanted.
func (p *process) canary(ctx context.Context, recorder proxy.Recorder, measured *metrics.Metrics) *check.Canary {
	if p.opts.canary == check.NoCanary {
		return nil
	}
	var networks []string
	for _, family := range p.families.All {
		networks = append(networks, map[cluster.Family]string{cluster.IPv4: "tcp4", cluster.IPv6: "tcp6"}[family])
	}
	listeners, err := selfcall.Listen(networks...)
	if err != nil {
		klog.FromContext(ctx).Error(err, "The rules of a family are not tried, because the canary cannot listen on loopback: see whether lo has an address of it")
	}
	p.Planning.Canary = listeners.Addresses()
	mode := string(p.cfg.EffectiveMode())
	checker := &check.Checker{Stage: check.During, Host: &check.Linux{Modes: map[string]backend.Remover{mode: p.mode}},
		Node: check.Node{Families: p.families.All, Mode: mode}}
	return check.NewCanary(check.CanaryConfig{
		Families: p.families.All, Node: p.Name, Caller: listeners, Unrouted: selfcall.Unrouted,
		Causes: packets.Causes{Open: p.openTrace, Why: WhyNotForwarded}.Of, Check: checker.Failed, Measure: host.MeasureCPU,
		Recorder: recorder, Broken: measured.DataplaneBroken,
	})
}

// openTrace begins a trace of packets, if it shows the rules of this mode.
func (p *process) openTrace(ctx context.Context, f trace.Filter) (trace.Tracer, error) {
	if err := p.mode.Untraceable(ctx); err != nil {
		return nil, err
	}
	return trace.Open(ctx, f)
}

// WhyNotForwarded returns why the kernel does not send a packet on; "" if that is not known.
func WhyNotForwarded(h *trace.Headers) string {
	return netif.Kernel{}.WhyNotForwarded(h.Source.Addr(), h.Destination.Addr(), h.In, h.Mark)
}
