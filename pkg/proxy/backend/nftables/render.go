package nftables

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"net/netip"
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// desired is what one family's table should hold for a plan, as an immutable value.
//
// The order of slots is not part of its meaning, because every slot has the same probability. render puts a pool in any
// order, and diff keeps endpoints in their slots.
type desired struct {
	content
	schema   *schema
	skeleton *skeleton
	// devices are those of the flowtable. An index is 0 if it was read from the kernel.
	devices []cluster.Device
	// from is the plan that was rendered; nil if the content was read from the kernel.
	from *plan.Plan
}

// nothing is the content of an empty table.
func nothing(s *schema) *desired { return &desired{schema: s} }

// render is the function of that name, in another schema if more would count than may, or if a frontend is the first with a fast path.
func (o Options) render(p *plan.Plan, last *desired) *desired {
	want, schema := render(p, o, last), last.schema
	level := max(schema.counting, o.Counters.Allow(want.services, want.endpoints))
	if fast := schema.fast || want.fast > 0; level != schema.counting || fast != schema.fast {
		return render(p, o, nothing(newSchema(schema.family, level, fast)))
	}
	return want
}

// render renders a plan. last is an earlier result, or the content of the table after it was written; it saves the work
// for frontends whose route has not changed since, and never affects the result.
func render(p *plan.Plan, opts Options, last *desired) *desired {
	if last.from == nil {
		last = &desired{schema: last.schema, from: &plan.Plan{Node: &plan.Node{}}}
	}
	edit, family := last.edit(), last.schema.family
	for frontend, change := range cluster.Changes(last.from.Frontends, p.Frontends) {
		if frontend.Family() != family {
			continue
		}
		before, _ := edit.frontends.Get(frontend)
		var after *entry
		if change.Is {
			after = renderRoute(change.After)
		}
		edit.replace(frontend, before, after)
	}
	for addr, change := range cluster.Changes(last.from.Hairpins, p.Hairpins) {
		switch {
		case !change.Was:
			count(edit.watched, addr, 1)
		case !change.Is:
			count(edit.watched, addr, -1)
		}
	}
	want := &desired{content: edit.content(), schema: last.schema, skeleton: last.skeleton, from: p}
	if want.schema.fast {
		want.devices = p.Node.Devices
	}
	want.addrs[clusterIPs], want.addrs[hairpins] = p.ClusterIPs, p.Hairpins
	if want.skeleton == nil || p.Node != last.from.Node {
		want.skeleton = newWriter(want.schema, p.Node, opts).skeleton()
		want.addrs[nodeAddrs] = renderNodeAddrs(p.Node)
	}
	return want
}

// renderNodeAddrs returns the addresses on which node ports are served. It excludes loopback addresses, which this mode
// cannot serve.
func renderNodeAddrs(node *plan.Node) cluster.Map[netip.Addr, int] {
	addrs := cluster.Map[netip.Addr, int]{}.Edit()
	for _, addr := range node.NodePortAddrs {
		if !addr.IsLoopback() {
			addrs.Set(addr, 1)
		}
	}
	return addrs.Map()
}

// renderRoute renders the elements of one frontend.
func renderRoute(r *plan.Route) *entry {
	e := &entry{slots: r.Pool.Slots()}
	e.comment, e.onLocalhost, e.fast = nf.CutComment(r.Name), r.RejectOnLocalhost, r.FastPath
	e.unserved, e.dropped = r.Verdict == plan.Reject || r.Verdict == plan.Drop, r.Verdict == plan.Drop
	t := target{nodePort: r.Frontend.IsNodePort(), n: uint32(len(e.slots)), by: r.Pool.By()}
	switch {
	case r.ShortCut != nil:
		e.slots, e.editRare().local = r.ShortCut.Slots(), r.Pool.Slots()
		t.kind, t.n, t.m, t.by = local, uint32(len(e.slots)), uint32(len(r.Pool.Slots())), max(t.by, r.ShortCut.By()) // a single endpoint is not picked
	case r.Verdict != plan.Balance:
		t = target{}
	case r.Masquerade == plan.MasqueradeAll:
		t.kind = external
	case r.Masquerade == plan.MasqueradeOffCluster:
		t.kind = internal
	default:
		t.kind = pick
	}
	e.goes = t
	e.stick(r)
	e.guard(r)
	e.bound(r)
	return e
}

// stick adds session affinity to an entry, and the pool by whose number of connections slots are picked one after the other.
func (e *entry) stick(r *plan.Route) {
	sticky := r.Affinity.For() >= time.Second
	if e.goes.kind == none || !sticky && e.goes.by != cluster.RoundRobin {
		return
	}
	pool := poolOf(r)
	if sticky {
		e.goes.seconds = uint32(r.Affinity.Timeout / time.Second)
		e.editRare().affinity = r.Affinity
		e.editRare().remember = target{kind: remember, seconds: e.goes.seconds, id: uint64(pool)}
	}
	if e.goes.kind != local && r.Policy == cluster.PolicyLocal {
		pool |= localBit
	}
	e.goes.id = uint64(pool)
}

// guard restricts an entry to the route's source ranges. The chain that checks them is named after a hash of the list:
// Services with the same list share it, and a changed list is another chain.
func (e *entry) guard(r *plan.Route) {
	if len(r.SourceRanges) == 0 {
		return
	}
	list := &checks{ranges: r.SourceRanges}
	if list.ranges[0].Bits() == 0 {
		return // all sources are allowed
	}
	text := sha256.New()
	for _, r := range list.ranges {
		fmt.Fprintln(text, r)
	}
	e.editRare().sources = list
	e.editRare().from = target{kind: from, id: binary.BigEndian.Uint64(text.Sum(nil))}
	e.goes.guarded = e.goes.kind != none
}

// bound checks the bounds of the Service's connections. The chain that does is named after a hash of the Service and the bounds: changed
// bounds are another chain, which begins to count.
func (e *entry) bound(r *plan.Route) {
	if r.Fence == nil || e.goes.kind == none {
		return
	}
	id := sha256.Sum256(fmt.Append(nil, r.Service, *r.Fence))
	e.limited, e.goes.fence, e.editRare().fence = true, binary.BigEndian.Uint64(id[:]), &checks{fence: r.Fence}
}
