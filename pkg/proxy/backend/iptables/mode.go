package iptables

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/klog/v2"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// Mode is the proxy mode of this backend.
type Mode struct {
	Options  Options
	Settings Settings
}

var _ backend.Mode = Mode{}

// WithoutRawSockets is part of [backend.Mode].
func (Mode) WithoutRawSockets() string {
	return "rules of the legacy variant of iptables cannot be read, so on a node that uses it the wrong variant is taken"
}

// Untraceable is part of [backend.Mode].
func (Mode) Untraceable(ctx context.Context) error {
	variant, err := ipt.Detect(ctx)
	if err != nil {
		return fmt.Errorf("find out which variant of iptables is in use: %w", err)
	}
	if variant == ipt.Legacy {
		return errors.New("the rules here are written with iptables-legacy, which the trace of nf_tables does not show, and the trace of x_tables " +
			"(target TRACE) goes only to the kernel's log: use \"kube-proxy explain --try\", or run the proxy with iptables-nft or in nftables mode")
	}
	return nil
}

// Open implements [backend.Mode]. It uses the variant of iptables that the node uses.
func (m Mode) Open(ctx context.Context, families ...cluster.Family) (backend.Backend, error) {
	variant, err := ipt.Detect(ctx)
	if err != nil {
		return nil, err
	}
	return m.openVariant(ctx, variant, families, ipt.OpenUsable)
}

// openVariant opens a Backend with ipt.Open or ipt.OpenUsable for each family.
func (m Mode) openVariant(ctx context.Context, variant ipt.Variant, families []cluster.Family,
	open func(context.Context, ipt.Family, ipt.Variant) (ipt.Tables, error)) (backend.Backend, error) {
	notices, err := OpenNotices(variant, doorFamilies(families)...)
	if err != nil {
		return nil, err
	}
	var doors []ipt.Tables
	for _, family := range families {
		door, err := open(ctx, doorFamily(family), variant)
		if err != nil {
			return nil, errors.Join(err, New(m.Options, m.Settings, notices, doors...).Close())
		}
		doors = append(doors, door)
	}
	return New(m.Options, m.Settings, notices, doors...), nil
}

// Present implements [backend.Remover], for both variants of iptables.
func (Mode) Present(ctx context.Context, families ...cluster.Family) (bool, error) {
	holding, err := ipt.Holding(ctx, doorFamilies(families), []string{tableNAT}, func(_, chain string) bool {
		return strings.HasPrefix(chain, prefixCluster) || chain == chainServices
	})
	return len(holding) > 0, err
}

// Remove implements [backend.Remover], for both variants of iptables. Without any rules, iptables need not be installed.
func (m Mode) Remove(ctx context.Context, families ...cluster.Family) error {
	holding, err := ipt.Holding(ctx, doorFamilies(families), tables(), func(table, chain string) bool { return chainName{table, chain}.ours() })
	failed := []error{err}
	for _, variant := range holding {
		b, err := m.openVariant(ctx, variant, backend.OrAll(families), ipt.Open)
		if err == nil {
			err = errors.Join(b.Cleanup(ctx), b.Close())
		}
		failed = append(failed, err)
	}
	if slices.Contains(backend.OrAll(families), cluster.IPv4) {
		m.noteLocalnet(ctx)
	}
	return errors.Join(failed...)
}

// noteLocalnet logs that what node ports on localhost needed stays: other programs may rely on it, too.
func (m Mode) noteLocalnet(ctx context.Context) {
	if value, err := m.Settings.Read(localnetRouted); err != nil || value != "1" {
		return
	}
	klog.FromContext(ctx).Info("The kernel accepts packets to 127.0.0.0/8 from other machines and pods, for node ports on localhost or for another program: "+
		"this setting stays, and so does the chain that drops them, if there is one, because the kubelet uses it too",
		"setting", localnetRouted, "chain", chainLocalnet, "hint", "if no other program needs it: sysctl -w net.ipv4.conf.all.route_localnet=0")
}

// doorFamilies are the families of the doors to these families, or of all doors if none are given.
func doorFamilies(families []cluster.Family) (all []ipt.Family) {
	for _, family := range backend.OrAll(families) {
		all = append(all, doorFamily(family))
	}
	return all
}

// Prepare is part of [backend.Mode]: it allows node ports on 127.0.0.0/8, and protects other sockets, if a plan
// with these options serves any.
func (m Mode) Prepare(ctx context.Context, planning *plan.Options) error {
	loopback := &cluster.Node{Interfaces: []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1})}}
	p := plan.Compute(&cluster.Snapshot{Node: loopback}, planning, nil)
	w := newWriter(cluster.IPv4, p.Node, m.Options, capabilities{})
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
	a := &applier{ctx: ctx, door: door, settings: m.Settings}
	return errors.Join(a.apply(&patch{localnet: true, hooks: localnetHooks()}), door.Close())
}
