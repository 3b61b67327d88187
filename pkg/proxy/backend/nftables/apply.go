package nftables

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"
	"sigs.k8s.io/knftables"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft"
	"github.com/seed-11a05479/kube-proxy/pkg/logonce"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// applier writes one patch to a table. Its steps write nothing after an error.
type applier struct {
	output
	err    error
	schema *schema
	chains *writer
	patch  *patch
	buffer *buffer
	// forgetting is the family's.
	forgetting *forgetting
	// refusing is the family's.
	refusing *logonce.Condition
	// fingerprinted reports that the table's fingerprint was taken.
	fingerprinted bool
}

// take does steps up to the first error, if there is anything to write.
func (a *applier) take(steps ...func()) {
	if a.patch.empty() {
		return
	}
	for _, step := range steps {
		if a.err == nil {
			step()
		}
	}
}

// write writes the batch, unless an earlier write failed.
func (a *applier) write() {
	if a.err == nil {
		a.err = a.commit()
	}
	a.batch.Reset()
}

// makeRoom writes the batch if no other operation fits.
func (a *applier) makeRoom() {
	if a.batch.Full() {
		a.write()
	}
}

// writeText writes a transaction, unless an earlier write failed.
func (a *applier) writeText(tx *nft.Transaction) {
	if a.err == nil {
		a.err = a.run(tx)
	}
}

// prepare declares the counters and sets, and writes what elements or sized chains lead to and is written as text.
func (a *applier) prepare() {
	a.declareSets()
	units := a.units()
	for begun := false; a.err == nil && (!begun || len(units) > 0); begun = true {
		n := 0
		for sets := 0; n < len(units) && sets < maxDeclared; n++ {
			sets += len(units[n].sets)
		}
		a.err = backend.InParts(n, func(from, to int) error { return a.declareUnits(units[from:to]) }, tooLarge)
		if !begun && a.patch.skeleton != nil && a.schema.fast {
			a.batch.EnsureFlowtable(flowtable)
		}
		a.shrink(units[:n])
		units = units[n:]
	}
}

// unbounded is the size of a set that had none until another program declared one: it can be changed, not removed.
const unbounded = 1 << 30

// declareSets declares the sets that every plan needs, if the skeleton has to be written. Ordinary chains that became base chains go before
// anything is to lead to them.
func (a *applier) declareSets() {
	var found nf.Objects
	if a.patch.skeleton == nil {
		return
	}
	if found, a.err = a.table.Objects(a.ctx); a.err != nil {
		return
	}
	tx := a.table.NewTransaction()
	tx.Add(&knftables.Table{})
	for _, c := range found.Chains {
		if c.Type == "" {
			continue
		}
		_, err := parseTarget(c.Name)
		ordinary := func(o chain) bool { return o.name == c.Name && o.kind == "" }
		if err == nil || slices.ContainsFunc(a.patch.skeleton.chains, ordinary) {
			destroy(tx, &knftables.Chain{Name: c.Name})
		}
	}
	for _, s := range a.schema.sets {
		if slices.ContainsFunc(found.Sets, func(o nf.Set) bool { return o.Name == s.name && o.Size > 0 }) {
			sized := *s
			sized.size, s = unbounded, &sized
		}
		declare(tx, s)
	}
	if a.writeText(counted(tx)); errors.Is(a.err, unix.EEXIST) {
		// They have another type, which cannot be repaired while rules use them. The next Sync writes everything.
		const advice = "another program declared sets of this table, which is removed and written again: "
		a.err = errors.Join(errors.New(advice+a.err.Error()), removeTable(a.ctx, a.table)) // not wrapped, because no port is to blame
	}
}

// counted makes the kernel count a transaction, as output does unless it is empty: kernels count none that changes nothing, such as an empty
// set that is flushed, and older ones none whose tables, sets and counters exist.
func counted(tx *nft.Transaction) *nft.Transaction {
	if len(tx.Operations()) > 0 {
		tx.Add(&knftables.Chain{Name: chainServices})
	}
	return tx
}

// unit is what is written together: the maps of a port with session affinity, or a chain that checks source ranges or bounds, with the
// sets of its clients.
type unit struct {
	sets  []*set
	chain *chain
	// added reports that the sets are new. Others may be full.
	added bool
}

// units returns what the patch adds and rewrites.
func (a *applier) units() (units []unit) {
	for _, port := range a.patch.addSticky {
		maps, _ := a.patch.before.sticky.Get(port)
		u := unit{added: maps == 0}
		for _, pool := range port.maps() {
			u.sets = append(u.sets, a.schema.clients(pool))
		}
		units = append(units, u)
	}
	for i, t := range slices.Concat(a.patch.addChains, a.patch.rewriteChains) {
		if t.kind != from && t.kind != bounds {
			continue
		}
		if list, ok := a.patch.after.lists.Get(t); ok {
			checks := a.chains.checkChain(t, list)
			units = append(units, unit{a.schema.meters(t, list.fence), &checks, i < len(a.patch.addChains)})
		}
	}
	return units
}

// declareUnits writes units, and what every plan needs. Sets come first: nft checks a rule against one that exists already, and
// returns no number if it has another type, with which the quarantine would find the port.
func (a *applier) declareUnits(units []unit) error {
	sets, chains := a.table.NewTransaction(), a.declareAll()
	for _, u := range units {
		for _, s := range u.sets {
			declare(sets, s)
		}
		if u.chain != nil {
			a.chain(chains, *u.chain)
		}
	}
	if err := a.run(counted(sets)); err != nil {
		return err
	}
	return a.run(chains)
}

// maxDeclared is about how many sets that packets write are declared before they are shrunk: they have 0.5 MB each.
const maxDeclared = 400

// shrink lets the kernel free the memory of new sets for packets that nobody needs yet. It allocates a hash table for a full set, some
// 0.5 MB, and makes it smaller only when an element is deleted.
func (a *applier) shrink(units []unit) {
	client := element{frontend: plan.Frontend{Addr: a.schema.any}, addr: a.schema.any}
	for _, u := range units {
		for _, s := range u.sets {
			if !u.added {
				continue
			}
			a.makeRoom()
			e := s.encode(&client, a.buffer)
			a.batch.Ensure(s.name, &e)
			a.batch.Delete(s.name, e.Key)
		}
	}
	a.write()
}

// declareAll returns a transaction that declares what else every plan needs, if the skeleton has to be written.
func (a *applier) declareAll() *nft.Transaction {
	tx := a.table.NewTransaction()
	if a.patch.skeleton == nil {
		return tx
	}
	for _, protocol := range protocols {
		tx.Add(&knftables.Counter{Name: localhostCounter(protocol)})
	}
	tx.Add(&knftables.Counter{Name: counterFull})
	a.chain(tx, a.patch.skeleton.chain(chainLimited))
	if a.guarded() {
		tx.Add(&knftables.Chain{Name: chainRanges}) // change writes its rule
	} else {
		a.chain(tx, a.patch.skeleton.chain(chainRanges))
	}
	return tx
}

// guarded reports whether a chain leads to the source ranges, before or after.
func (a *applier) guarded() bool {
	for _, targets := range []*cluster.Map[target, int]{&a.patch.before.targets, &a.patch.after.targets} {
		for t := range targets.All() {
			if t.guarded {
				return true
			}
		}
	}
	return false
}

// change writes the sized chains and the elements.
//
// New chains have their own transaction, before the elements that lead to them: otherwise a packet from before the
// transaction could find such an element and enter an empty chain. Existing chains are rewritten when the sets that their
// rules look up are complete: they may be other sets than before.
func (a *applier) change() {
	a.sized(a.patch.addChains, func(name string) { a.batch.AddChain(nf.Chain{Name: name}) })
	a.operateAll(a.patch.lookedUp(), a.patch.strays...)
	if a.patch.skeleton != nil && a.err == nil && a.guarded() {
		tx := a.table.NewTransaction()
		a.chain(tx, a.patch.skeleton.chain(chainRanges))
		a.writeText(tx)
	}
	a.sized(a.patch.rewriteChains, a.batch.FlushChain)
	a.operateAll(a.patch.others())
}

// sized writes sized chains. empty adds or flushes one.
//
// They are written over netlink like the elements: that does not start nft, and nft 1.0.6 could not write them
// (package nft).
func (a *applier) sized(chains []target, empty func(name string)) {
	for _, t := range chains {
		if t.kind == from || t.kind == bounds { // written by prepare
			continue
		}
		if a.makeRoom(); a.err != nil {
			break
		}
		empty(t.name())
		for _, rule := range a.chains.sized(t) {
			nft.AddRule(a.batch, t.name(), rule)
			a.rules++
		}
	}
	a.write()
}

// operateAll writes operations, in transactions of limited size; the first ones also remove the given strays.
func (a *applier) operateAll(ops iter.Seq[*op], strays ...stray) {
	for _, s := range strays {
		a.makeRoom()
		a.batch.Delete(s.set, []byte(s.key))
	}
	for o := range ops {
		if a.batch.Len() >= maxTransaction || a.batch.Full() {
			a.writeElements()
		}
		if a.err != nil {
			break
		}
		a.operate(o)
	}
	a.writeElements()
}

// writeElements writes the batch and counts its operations.
func (a *applier) writeElements() {
	count := a.batch.Len()
	if a.write(); a.err == nil {
		a.elements += count
	}
}

// operate adds one operation to the batch.
func (a *applier) operate(o *op) {
	e := o.set.encode(&o.element, a.buffer)
	if o.verb != add {
		a.batch.Delete(o.set.name, e.Key)
	}
	if o.verb != remove {
		a.batch.Add(o.set.name, &e)
	}
}

// hook writes the fixed chains in one transaction: after it, packets meet this ruleset only. The same transaction
// unhooks base chains of another program in our table.
func (a *applier) hook() {
	if a.patch.skeleton == nil || a.err != nil {
		return
	}
	var objects nf.Objects
	if objects, a.err = a.table.Objects(a.ctx); a.err != nil {
		return
	}
	tx, chains := a.table.NewTransaction(), a.patch.skeleton.chains
	for _, c := range objects.Chains {
		at := slices.IndexFunc(chains, func(o chain) bool { return o.name == c.Name })
		if at < 0 && c.Type != "" || at >= 0 && !chains[at].hookedAs(c) {
			destroy(tx, &knftables.Chain{Name: c.Name})
		}
	}
	for _, c := range chains { // all of them first, because they lead to each other
		tx.Add(c.declaration())
	}
	for _, c := range chains {
		a.chain(tx, c)
	}
	a.writeText(tx)
}

// attach adds devices to the flowtable. Connections through those that it cannot have take the usual path. One that has disappeared
// meanwhile is not missed: the next plan does not have it. The others are tried again with the next change.
func (a *applier) attach() {
	var refused []error
	for _, device := range a.patch.addDevices {
		a.batch.AddDevice(flowtable, device.Name)
		err := a.commit()
		switch {
		case err == nil:
			continue
		case errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EBUSY) || errors.Is(err, unix.ENOMEM):
			refused = append(refused, fmt.Errorf("%s: %w", device.Name, err))
		case !errors.Is(err, unix.ENOENT):
			a.err = err
			return
		}
		holds := a.patch.result.holds
		holds.devices = slices.DeleteFunc(slices.Clone(holds.devices), func(d cluster.Device) bool { return d == device })
	}
	if err := errors.Join(refused...); err == nil {
		a.refusing.Ended()
	} else if a.refusing.Changed(err.Error()) {
		klog.FromContext(a.ctx).Info("The kernel refuses devices for the fast path; their connections take the usual path", "family", a.schema.family, "devices", err.Error())
	}
}

// settle waits for packets that still use what removeUnreachable and forget remove.
func (a *applier) settle() {
	if p := a.patch; len(p.delChains)+len(p.forget) > 0 || !p.leftovers.none() {
		a.err = a.table.Settle(a.ctx)
	}
}

// maxDestroyed is how many sets that packets write are deleted in one transaction, so that it fits a socket of a user namespace.
const maxDestroyed = 500

// removeUnreachable removes what nothing leads to any more. Leftovers are emptied first, because they may lead to chains that are to be
// deleted, and deleted last, because these may look them up.
func (a *applier) removeUnreachable() {
	tx, left := a.table.NewTransaction(), a.patch.leftovers
	for _, name := range left.chains {
		tx.Add(&knftables.Chain{Name: name}) // hook may have deleted it already
		tx.Flush(&knftables.Chain{Name: name})
	}
	a.writeText(tx)
	tx = a.table.NewTransaction()
	for _, o := range left.objects() { // a constant set cannot be emptied while a rule uses it
		tx.Flush(o)
	}
	a.writeText(counted(tx))
	for _, t := range a.patch.delChains {
		a.makeRoom()
		a.batch.FlushChain(t.name())
		a.batch.DeleteChain(t.name())
	}
	a.write()
	for sets := range slices.Chunk(a.unused(), maxDestroyed) {
		tx = a.table.NewTransaction()
		for _, s := range sets {
			destroy(tx, s)
		}
		a.writeText(tx)
	}
	tx = a.table.NewTransaction()
	for _, o := range left.objects() {
		tx.Delete(o)
	}
	for _, name := range left.flowtables {
		tx.Delete(&knftables.Flowtable{Name: name})
	}
	a.writeText(tx)
}

// unused returns the sets that packets write and that nothing looks up any more: those that there are, because a chain that checks bounds
// has a set for some of them only, and another program may have deleted one.
func (a *applier) unused() (unused []knftables.Object) {
	names := map[string]bool{}
	for _, port := range a.patch.delSticky {
		for _, pool := range port.maps() {
			names[pool.clients()] = true
		}
	}
	for _, t := range a.patch.delChains {
		if t.kind == bounds {
			for _, s := range a.schema.meters(t, cluster.EveryBound()) {
				names[s.name] = true
			}
		}
	}
	if len(names) == 0 || a.err != nil {
		return nil
	}
	var objects nf.Objects
	objects, a.err = a.table.Objects(a.ctx)
	for _, s := range objects.Sets {
		switch {
		case !names[s.Name]:
		case s.Map:
			unused = append(unused, &knftables.Map{Name: s.Name})
		default:
			unused = append(unused, &knftables.Set{Name: s.Name})
		}
	}
	return unused
}

// forget begins to remove clients of endpoints that left their pools from the affinity maps. Nothing can add such a client again
// at this point. What takes longer follows in Check.
func (a *applier) forget() {
	a.forgetting.add(a.patch.forget)
	a.err = a.forgetting.part(&a.output, a.schema, a.patch.after)
}

// fingerprint takes the fingerprint of the table if the patch has changed what it covers.
func (a *applier) fingerprint() {
	p := a.patch
	if p.skeleton == nil && len(p.addChains)+len(p.delChains) == 0 && p.leftovers.none() {
		return
	}
	p.result.fingerprint, p.result.objects, a.err = a.table.Fingerprint(a.ctx, chainLayout)
	a.fingerprinted = a.err == nil
	// This transaction comes after all that the fingerprint may have seen. The kernel has reported those then, not before.
	a.batch.EnsureChain(chainLayout)
	a.write()
}

// record writes the fingerprint into the table, so that the next process can detect external changes.
func (a *applier) record() {
	a.batch.DeleteChain(chainLayout)
	result := a.patch.result
	a.batch.AddChain(nf.Chain{Name: chainLayout, Comment: result.holds.skeleton.digest + " " + result.fingerprint})
	a.write()
}

// hookedAs reports whether an existing chain has the right hook and priority.
func (c chain) hookedAs(o nf.Chain) bool {
	if c.kind == "" || o.Type == "" {
		return string(c.kind) == o.Type
	}
	priority, err := knftables.ParsePriority(knftables.IPv4Family, string(c.priority))
	return err == nil && string(c.kind) == o.Type && string(c.hook) == nf.HookName(nf.IPv4, o.Hook) && int32(priority) == o.Priority
}

// removeTable removes a table with its content. A missing table is not an error. It does not start nft: 1.0.6 crashes if 1.1.3
// has written the table.
func removeTable(ctx context.Context, table nft.Table) error {
	objects, err := table.Objects(ctx)
	if err != nil || !objects.Exists {
		return err
	}
	batch := table.NewBatch()
	batch.DeleteTable()
	return table.Commit(ctx, batch)
}
