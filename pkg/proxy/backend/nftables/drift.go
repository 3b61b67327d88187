package nftables

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend/keeper"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// Holds implements [keeper.Rules]. It leaves out what says nothing about the rules: the record of the fingerprint, and single clients.
func (f *family) Holds(o nf.Object) bool {
	if o.Table != (nf.TableName{Family: f.schema.number, Name: f.table.Name()}) {
		return false
	}
	_, clients := parseClients(o.Name)
	_, meter := parseMeter(o.Name)
	return (o.Kind != nf.ChainObject || o.Name != chainLayout || o.Hooked) && (o.Kind != nf.ElementObject || !clients && !meter || o.Key == "")
}

// Reread implements [keeper.Rules]. The fingerprint shows whether chains, sets or other objects were changed: then the next Sync
// reads the table. Elements are looked up. If it is not known which were written, all are read, over another socket, and
// those that differ are looked up after that.
func (f *family) Reread(ctx context.Context, touched keeper.Touched, later keeper.Later) (left keeper.Touched, drift *backend.Drift, err error) {
	read := f.endedAudit()
	if f.have == nil { // the next Sync reads it
		return left, nil, nil
	}
	if read != nil && read.err != nil {
		touched.All = true
		return touched, nil, read.err
	}
	// fixed is everything but elements, all is all elements, which is more than can be looked up.
	fixed, all, elements := touched.All, touched.All, []nf.Object(nil)
	for o := range touched.Objects {
		if o.Kind == nf.ElementObject {
			elements = append(elements, o)
			if pool, clients := parseClients(o.Name); clients {
				f.forgetting.add([]poolID{pool}) // one for all clients, which packets do not add
			}
			continue
		}
		fixed, all = true, all || o.Kind != nf.ChainObject // the kernel does not report the elements that are deleted with a set
	}
	if read != nil {
		elements = append(elements, read.differ...)
	}
	if fixed {
		drift, err = f.compareFixed(ctx)
	}
	if err == nil && drift == nil {
		elements, drift, err = f.compareElements(ctx, elements)
	}
	switch {
	case err != nil:
		touched.All = touched.All || read != nil
		return touched, nil, err
	case drift != nil:
		drift.Family, drift.Writer = f.schema.family, touched.Writer
	}
	if f.have == nil {
		return left, drift, nil
	}
	if all && f.audit == nil && later != nil {
		err = f.beginAudit(later)
		all = err != nil
	}
	return keeper.TouchedBy(all, elements), drift, err
}

// compareFixed compares everything except elements.
func (f *family) compareFixed(ctx context.Context) (*backend.Drift, error) {
	fingerprint, objects, err := f.table.Fingerprint(ctx, chainLayout)
	if err != nil {
		return nil, err
	}
	lost, err := f.lostDevices(ctx)
	if err != nil || fingerprint == f.have.fingerprint && lost == nil {
		return nil, err
	}
	found := &backend.Drift{What: "its chains, rules or sets", Details: firstOf(append(changedObjects(f.have.objects, objects), lost...))}
	// A chain that only another kube-proxy writes has the name of a Service.
	found.Rival = slices.ContainsFunc(slices.Collect(maps.Keys(objects)), func(name string) bool { return strings.HasPrefix(name, "chain ") && strings.Contains(name, "/") })
	f.have = nil
	return found, nil
}

// lostDevices describes the devices that the flowtable lacks although they exist: another program has removed them.
func (f *family) lostDevices(ctx context.Context) (lost []string, _ error) {
	if !f.schema.fast {
		return nil, nil
	}
	found := newReader(ctx, f.table, f.schema, largeSet)
	objects, err := f.table.Objects(ctx)
	if err != nil {
		return nil, err
	}
	found.flowtables(objects.Flowtables)
	lacks := lacking(found.out.holds.devices, f.have.holds.devices)
	if len(lacks) == 0 {
		return nil, nil
	}
	exist, err := f.opts.Devices()
	if err != nil {
		return nil, err
	}
	for _, device := range lacks {
		if exist[device.Name] == device.Index {
			lost = append(lost, "device "+device.Name+" of flowtable "+flowtable+" was removed")
		}
	}
	return lost, nil
}

// changedObjects describes the objects that differ.
func changedObjects(before, after map[string]string) (details []string) {
	for name, digest := range before {
		switch now, exists := after[name]; {
		case !exists:
			details = append(details, name+" was deleted")
		case now != digest:
			details = append(details, name+" was changed")
		}
	}
	for name := range after {
		if _, was := before[name]; !was {
			details = append(details, name+" was added")
		}
	}
	return firstOf(details)
}

// firstOf limits the details of a drift.
func firstOf(details []string) []string {
	slices.Sort(details)
	return details[:min(len(details), backend.MaxDetails)]
}

// maxLookedUp is about how many elements are looked up at once, in 60 ms, by which a change may be delayed.
const maxLookedUp = 8192

// compareElements looks up elements, with all others of their frontends and pools, and keeps what the table has there instead of
// what it should have, so that the next Sync writes that. It returns those for which there was no time.
func (f *family) compareElements(ctx context.Context, elements []nf.Object) (left []nf.Object, _ *backend.Drift, _ error) {
	p := &part{of: f.have.content(), schema: f.schema, keys: map[string]map[string]struct{}{}}
	for len(elements) > 0 && p.size < maxLookedUp {
		p.add(elements[0])
		elements = elements[1:]
	}
	r := newReader(ctx, f.table, f.schema, 0)
	for _, set := range f.schema.sets {
		if p.keys[set.name] == nil {
			continue
		}
		if _, err := r.take(set, f.table.Find(ctx, set.name, p.keysOf(set))); err != nil {
			return elements, nil, err
		}
	}
	found := r.state(&p.content)
	var details []string
	for set, e := range f.schema.only(&p.content, &found.holds.content) {
		details = append(details, set.title()+" lacked "+set.text(&e))
	}
	for set, e := range f.schema.only(&found.holds.content, &p.content) {
		details = append(details, set.title()+" had "+set.text(&e))
	}
	strays := slices.DeleteFunc(slices.Clone(f.have.strays), func(s stray) bool { _, again := p.keys[s.set][s.key]; return again })
	for _, s := range found.strays {
		if strays = append(strays, s); !slices.Contains(f.have.strays, s) {
			set := f.schema.named(s.set)
			details = append(details, set.title()+" had "+set.keyText([]byte(s.key)))
		}
	}
	now, altered := *f.have, *p.of
	altered.frontends = replaced(altered.frontends, p.frontends, found.holds.frontends)
	altered.pools = replaced(altered.pools, p.pools, found.holds.pools)
	for in := range altered.addrs {
		altered.addrs[in] = replaced(altered.addrs[in], p.addrs[in], found.holds.addrs[in])
	}
	now.altered, now.strays = &altered, strays
	f.have = &now
	if details == nil {
		return elements, nil, nil
	}
	return elements, &backend.Drift{What: "its elements", Details: firstOf(details)}, nil
}

// replaced returns a map with part of it replaced.
func replaced[K cluster.Key[K], V comparable](of, before, after cluster.Map[K, V]) cluster.Map[K, V] {
	edit := of.Edit()
	for key, change := range cluster.Changes(before, after) {
		if change.Is {
			edit.Set(key, change.After)
		} else {
			edit.Delete(key)
		}
	}
	return edit.Map()
}

// part is what a content has of the frontends, addresses and pools of some elements, and the keys of these and of all elements of
// the part, by set.
type part struct {
	content
	of     *content
	schema *schema
	keys   map[string]map[string]struct{}
	size   int
}

// add adds the surroundings of an element.
func (p *part) add(o nf.Object) {
	set, e, one := p.schema.named(o.Name), element{}, content{}
	if set == nil { // one that a rule contains, or that was found with the others of its kind
		return
	}
	if p.addKey(set, o.Key); set.nodePort {
		e.frontend.Addr = set.any
	}
	if !decodeAll(set.key, []byte(o.Key), &e) {
		return
	}
	switch m := set.members.(type) {
	case nil:
		one.frontends = taken(&p.frontends, p.of.frontends, e.frontend)
	case addrMembers:
		one.addrs[m.in] = taken(&p.addrs[m.in], p.of.addrs[m.in], e.frontend.Addr)
	case poolMembers:
		one.pools = taken(&p.pools, p.of.pools, e.pool())
	}
	var in buffer
	for set, e := range p.schema.elements(&one) {
		p.addKey(set, string(set.encode(&e, &in).Key))
	}
}

// taken adds what a map has of a key to another, and returns that alone; nothing if it was added before.
func taken[K cluster.Key[K], V comparable](to *cluster.Map[K, V], of cluster.Map[K, V], key K) (one cluster.Map[K, V]) {
	value, has := of.Get(key)
	if _, had := to.Get(key); !has || had {
		return one
	}
	*to = to.Set(key, value)
	return one.Set(key, value)
}

func (p *part) addKey(s *set, key string) {
	if p.keys[s.name] == nil {
		p.keys[s.name] = map[string]struct{}{}
	}
	p.keys[s.name][key] = struct{}{}
	p.size++
}

// keysOf yields the keys of a set.
func (p *part) keysOf(s *set) func(yield func([]byte) bool) {
	return func(yield func([]byte) bool) {
		for key := range p.keys[s.name] {
			if !yield([]byte(key)) {
				return
			}
		}
	}
}

// endedAudit returns the audit if it has ended, once.
func (f *family) endedAudit() (ended *audit) {
	if f.audit != nil && f.audit.ended.Load() {
		ended, f.audit = f.audit, nil
	}
	return ended
}

// beginAudit begins to read all elements.
func (f *family) beginAudit(later keeper.Later) error {
	table, err := f.table.Again()
	if err != nil {
		return err
	}
	a, s, should := &audit{}, f.schema, f.have.content()
	f.audit = a
	later(func(ctx context.Context) {
		defer a.ended.Store(true)
		reading, err := read(ctx, table, s)
		if a.err = errors.Join(err, table.Close()); a.err != nil {
			return
		}
		found, in := reading.state(should), newBuffer()
		for _, c := range [][2]*content{{should, &found.holds.content}, {&found.holds.content, should}} {
			for set, e := range s.only(c[0], c[1]) {
				a.differ = append(a.differ, nf.Object{Kind: nf.ElementObject, Name: set.name, Key: string(set.encode(&e, in).Key)})
			}
		}
		for _, o := range found.strays {
			a.differ = append(a.differ, nf.Object{Kind: nf.ElementObject, Name: o.set, Key: o.key})
		}
	})
	return nil
}
