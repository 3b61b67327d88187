package iptables

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// Node ports on 127.0.0.0/8 need a setting that lets packets to these addresses be routed. It would let neighbours reach
// what listens on localhost only (CVE-2020-8558), so a rule that keeps them out is in force before it is set.

// localnet tells whether node ports are served on 127.0.0.0/8.
func (w *writer) localnet() bool {
	return slices.ContainsFunc(w.node.NodePortAddrs, func(a netip.Addr) bool {
		return w.family == cluster.IPv4 && a.Is4() && a.IsLoopback()
	})
}

// localnetRule keeps neighbours out. The kubelet makes the same rule.
func (w *writer) localnetRule() []string {
	return []string{"!", "-s", w.loopback, "-d", w.loopback, "-m", "comment", "--comment", "block incoming localnet connections",
		"-m", "conntrack", "!", "--ctstate", "RELATED,ESTABLISHED,DNAT", "-j", "DROP"}
}

// localnetJumps lead to the chain that the rule is in.
func localnetJumps() []jump {
	return []jump{{from: chainName{tableFilter, "OUTPUT"}, to: chainLocalnet}, {from: chainName{tableFilter, "INPUT"}, to: chainLocalnet}}
}

// guardLocalnet writes the rule.
func guardLocalnet(door ipt.Tables, w *writer) error {
	return door.Append(tableFilter, chainLocalnet, w.localnetRule()...)
}

// routeLocalnet sets the setting.
func routeLocalnet(settings Settings) error {
	if value, err := settings.Read(localnetRouted); err == nil && value == "1" {
		return nil
	}
	if err := settings.Write(localnetRouted, "1"); err != nil {
		return fmt.Errorf("node ports on localhost: %w; set it beforehand (--init-only does), or do without them (localhostNodePorts: false)", err)
	}
	return nil
}

// Prepare does what a backend with these options takes a privileged process for: it makes node ports on 127.0.0.0/8 possible,
// and safe, if a plan with these options serves any.
func Prepare(ctx context.Context, opts Options, settings Settings, planning *plan.Options) error {
	loopback := &cluster.Node{Interfaces: []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1})}}
	p := plan.Compute(&cluster.Snapshot{Node: loopback}, planning, nil)
	w := newWriter(cluster.IPv4, p.Node, opts, capabilities{})
	if !w.localnet() {
		return nil
	}
	variant, err := ipt.Detect(ctx)
	if err != nil {
		return err
	}
	door, err := ipt.Open(ctx, ipt.IPv4, variant)
	if err != nil {
		return err
	}
	a := &applier{ctx: ctx, door: door, writer: w, settings: settings}
	return errors.Join(a.apply(&patch{localnet: true, jumps: localnetJumps()}), door.Close())
}
