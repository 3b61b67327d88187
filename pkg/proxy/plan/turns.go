package plan

import (
	"cmp"
	"iter"
	"net/netip"
	"slices"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// Limit bounds how much of a cluster's changes one plan includes, so that an expensive change of one Service does not delay
// the others. Its numbers are of elements: endpoints and source ranges, for each frontend.
type Limit struct {
	// Small bounds the changes that are included at once, all of a namespace together, the smallest first. The others wait for their
	// turn.
	Small int
	// Part is about how much of the waiting changes is included; 0 is nothing. A route of at most Whole elements changes at once.
	Part, Whole int
}

// waiting is a Service with a change that a plan does not include, or only in part. In its turns, first its ports are decided about, some
// in each, and then its routes change, some in each. When all have, it waits again if there is a newer version.
type waiting struct {
	name cluster.ServiceName
	// turn orders the Services that wait. Each part takes a turn, and the Services of a namespace take theirs one after the
	// other, so that a namespace with many of them delays others no more than one with few.
	turn uint64
	// included is the version that the plan includes; nil is none.
	included *cluster.Service
	// uid is that of the newest version when it began to wait, or of the one before.
	uid string
	// change is nil until its first turn.
	change *transition
}

// transition is the way to another version of a Service. A newer version has to wait until it is complete: a Service that
// changes all the time would never be complete otherwise.
type transition struct {
	// to is the version; nil deletes the Service.
	to *cluster.Service
	// deciding is the decision about that version until it is complete, then nil.
	deciding *decision
	// now holds the decisions, meanwhile those that hold until all routes are included.
	now, meanwhile *Service
}

// compare sorts by turn.
func (w waiting) compare(o waiting) int {
	return cmp.Or(cmp.Compare(w.turn, o.turn), w.name.Compare(o.name))
}

// Waiting yields the Services whose last change is not included in the plan, or only in part, in the order of their turns, with their
// UIDs.
func (p *Plan) Waiting() iter.Seq2[cluster.ServiceName, string] {
	return func(yield func(name cluster.ServiceName, uid string) bool) {
		for _, w := range p.waiting {
			if !yield(w.name, w.uid) {
				return
			}
		}
	}
}

// Lacks reports whether anything but the Services that wait differs from a snapshot.
func (p *Plan) Lacks(snap *cluster.Snapshot) bool {
	q := newQueue(p)
	for name := range cluster.Changes(p.snapshot.Services, snap.Services) {
		if !q.waits[name] {
			return true
		}
	}
	return p.snapshot.Node != snap.Node || !slices.Equal(p.snapshot.ServiceCIDRs, snap.ServiceCIDRs)
}

// Waits returns how many Services wait.
func (p *Plan) Waits() int { return len(p.waiting) }

// Snapshot returns what the plan implements: the snapshot that it was made from, but with an earlier version of each Service
// that waits.
func (p *Plan) Snapshot() *cluster.Snapshot { return p.snapshot }

// queue holds the Services that wait while a plan is made.
type queue struct {
	waiting []waiting
	// waits has the names of all that wait, or have waited.
	waits map[cluster.ServiceName]bool
	// last is the latest turn of each namespace, turn the latest one that was taken.
	last map[string]uint64
	turn uint64
}

func newQueue(before *Plan) queue {
	q := queue{waiting: slices.Clone(before.waiting), waits: map[cluster.ServiceName]bool{}, last: map[string]uint64{}, turn: before.turn}
	for _, w := range before.waiting {
		q.last[w.name.Namespace], q.waits[w.name] = w.turn, true
	}
	return q
}

// add makes a Service wait, behind all others of its namespace.
func (q *queue) add(w waiting) {
	w.turn = max(q.turn, q.last[w.name.Namespace]) + 1
	q.last[w.name.Namespace], q.waits[w.name] = w.turn, true
	q.waiting = append(q.waiting, w)
}

// earlier returns a snapshot with the included versions of what waits.
func (q *queue) earlier(snap *cluster.Snapshot) *cluster.Snapshot {
	if len(q.waiting) == 0 {
		return snap
	}
	services := snap.Services.Edit()
	for _, w := range q.waiting {
		if w.included == nil {
			services.Delete(w.name)
		} else {
			services.Set(w.name, w.included)
		}
	}
	earlier := *snap
	earlier.Services = services.Map()
	return &earlier
}

// all includes every change.
func (c *computation) all() {
	for name, change := range cluster.Changes(c.before.snapshot.Services, c.snapshot.Services) {
		c.include(name, change.After)
	}
	for _, w := range c.queue.waiting { // it may be the same again, but was included in part
		newest, _ := c.snapshot.Services.Get(w.name)
		c.include(w.name, newest)
	}
	c.queue.waiting = nil
}

// small includes the changes that are small enough, and makes the others wait. What waits and has become the same again waits no
// longer.
func (c *computation) small() {
	c.queue.waiting = slices.DeleteFunc(c.queue.waiting, func(w waiting) bool {
		newest, _ := c.snapshot.Services.Get(w.name)
		return w.change == nil && newest == w.included
	})
	type sized struct {
		name          cluster.ServiceName
		before, after *cluster.Service
		size          int
	}
	var changes []sized
	for name, change := range cluster.Changes(c.before.snapshot.Services, c.snapshot.Services) {
		if !c.queue.waits[name] {
			changes = append(changes, sized{name, change.Before, change.After, changeSize(change.Before, change.After, c.opts.Balancing)})
		}
	}
	slices.SortFunc(changes, func(a, b sized) int { return cmp.Or(cmp.Compare(a.size, b.size), a.name.Compare(b.name)) })
	used := map[string]int{}
	for _, change := range changes {
		if used[change.name.Namespace] += change.size; used[change.name.Namespace] <= c.limit.Small {
			c.include(change.name, change.after)
			continue
		}
		c.queue.add(waiting{name: change.name, uid: cmp.Or(change.after, change.before).UID, included: change.before})
	}
	slices.SortFunc(c.queue.waiting, waiting.compare)
}

// dropObsolete withdraws the claims of Services that wait which their newest versions do not make, where other Services have claims.
func (c *computation) dropObsolete() {
	if len(c.queue.waiting) == 0 {
		return
	}
	for _, claims := range c.contested.Map().All() {
		for route := range claims.Routes.Values() {
			if c.obsolete(route) {
				c.drop(route)
			}
		}
	}
}

// obsolete reports whether a route belongs to a Service that waits, and its newest version has no such frontend: another Service
// may have got the address, and must not wait for it.
func (c *computation) obsolete(route *Route) bool {
	if !c.queue.waits[route.Service] {
		return false
	}
	newest, exists := c.snapshot.Services.Get(route.Service)
	return !exists || !offers(newest, route.Frontend)
}

// offers reports whether a Service has a port and an address of a frontend.
func offers(s *cluster.Service, f Frontend) bool {
	has := slices.Contains(s.ClusterIPs, f.Addr) || slices.Contains(s.LoadBalancerIPs(), f.Addr) || slices.Contains(s.ExternalIPs(), f.Addr)
	return slices.ContainsFunc(s.Ports, func(port cluster.ServicePort) bool {
		return port.Protocol == f.Protocol && (f.IsNodePort() && port.NodePort == f.Port || has && port.Port == f.Port)
	})
}

// drop withdraws one route of a Service that waits, for good.
func (c *computation) drop(route *Route) {
	without := func(s *Service) *Service {
		less := *s
		less.Routes = slices.DeleteFunc(slices.Clone(s.Routes), func(r *Route) bool { return r.Frontend == route.Frontend })
		return &less
	}
	old, _ := c.services.Get(route.Service)
	c.services.Set(route.Service, without(old))
	c.withdraw(old, route)
	for i := range c.queue.waiting {
		if w := &c.queue.waiting[i]; w.name == route.Service && w.change != nil && w.change.now != nil {
			change := *w.change
			change.now = without(change.now)
			w.change = &change
		}
	}
}

// decidedPerWritten is how many elements can be decided about while one is written, at least.
const decidedPerWritten = 8

// parts includes parts of the changes that wait, each in its turn, until they are about as large as the limit.
func (c *computation) parts() {
	var again []waiting
	for left := c.limit.Part; left > 0 && len(c.queue.waiting) > 0; c.queue.waiting = c.queue.waiting[1:] {
		w := c.queue.waiting[0]
		c.queue.turn = w.turn
		old, _ := c.services.Get(w.name)
		if w.change = c.advance(w, old, &left); w.change.deciding != nil {
			again = append(again, w)
			continue
		}
		m := mixture{left: left, limit: c.limit, whole: true}
		for before, after := range paired(old.routes(), w.change.now.routes()) {
			m.add(before, after)
		}
		left = m.left
		if !m.whole {
			mixed := *w.change.meanwhile
			mixed.Routes = m.routes
			c.replace(w.name, old, &mixed)
			again = append(again, w)
			continue
		}
		c.replace(w.name, old, w.change.now)
		if newest, _ := c.snapshot.Services.Get(w.name); newest != w.change.to {
			again = append(again, waiting{name: w.name, uid: cmp.Or(newest, w.change.to).UID, included: w.change.to})
		}
	}
	for _, w := range again {
		c.queue.add(w)
	}
	slices.SortFunc(c.queue.waiting, waiting.compare)
}

// advance decides about the newest version of a Service that waits, or about more of its ports, and subtracts from what is left of a part.
func (c *computation) advance(w waiting, old *Service, left *int) *transition {
	if w.change != nil && w.change.deciding == nil {
		return w.change
	}
	t := transition{}
	if w.change != nil {
		t = *w.change
	} else if newest, exists := c.snapshot.Services.Get(w.name); exists {
		t.to, t.deciding = newest, newDecision(newest, c.snapshot.Node, c.opts, old)
	}
	if t.deciding != nil {
		ports := len(t.deciding.ports)
		t.deciding = t.deciding.after(max(*left, c.limit.Part/2) * decidedPerWritten)
		if ports -= len(t.deciding.ports); len(t.to.Ports) > 0 {
			*left -= bound(t.to) / len(t.to.Ports) * ports / decidedPerWritten
		}
		if len(t.deciding.ports) > 0 {
			return &t
		}
		t.now, t.deciding = t.deciding.finish(), nil
	}
	t.meanwhile = between(old, t.now)
	return &t
}

// between returns the decisions about a Service that hold until all its routes are included, without its routes: those before the
// change, and what routes of either version need. Load balancers are not sent here for what either version lacks. Only one of the
// versions may be nil.
func between(before, after *Service) *Service {
	mixed := *cmp.Or(before, after)
	mixed.HealthCheck = nil
	if before == nil || after == nil {
		return &mixed
	}
	mixed.HealthCheck = before.HealthCheck.atMost(after.HealthCheck)
	mixed.ClusterIPs = union(sortedSet(slices.Clone(before.ClusterIPs)), sortedSet(slices.Clone(after.ClusterIPs)), netip.Addr.Compare)
	mixed.rare = &rareLists{hairpinAddrs: union(before.HairpinAddrs(), after.HairpinAddrs(), netip.Addr.Compare), serving: slices.Clone(before.Serving()),
		localPods: after.localPods(), unbalanced: after.Unbalanced(), unfenced: after.Unfenced()}
	for _, serving := range after.Serving() {
		at, found := slices.BinarySearchFunc(mixed.rare.serving, serving, Serving.compare)
		if !found {
			mixed.rare.serving = slices.Insert(mixed.rare.serving, at, serving)
			continue
		}
		both := &mixed.rare.serving[at]
		both.Endpoints = union(both.Endpoints, serving.Endpoints, netip.AddrPort.Compare)
		both.Here = union(both.Here, serving.Here, netip.AddrPort.Compare)
	}
	return &mixed
}

// union returns a sorted list of what is in either of two sorted lists; one of these if they are equal.
func union[T comparable](a, b []T, compare func(a, b T) int) []T {
	if slices.Equal(a, b) {
		return a
	}
	all := make([]T, 0, len(a)+len(b))
	for len(a) > 0 && len(b) > 0 {
		order := compare(a[0], b[0])
		if order <= 0 {
			all, a = append(all, a[0]), a[1:]
		} else {
			all = append(all, b[0])
		}
		if order >= 0 {
			b = b[1:]
		}
	}
	return append(append(all, a...), b...)
}

// routes returns the routes of a Service, which may be nil.
func (s *Service) routes() []*Route {
	if s == nil {
		return nil
	}
	return s.Routes
}

// mixture collects the routes of a Service, some as before a change and the others as after it.
type mixture struct {
	routes []*Route
	// left is how many elements may still change, limit how many at most if nothing has changed before. whole reports that nothing is
	// left to change.
	left  int
	limit Limit
	whole bool
	// changed reports that a route has changed.
	changed bool
}

// add adds the route of one frontend, before and after; nil is none. There is some progress in each turn, however little is left.
func (m *mixture) add(before, after *Route) {
	route := after
	if before != after {
		size := routeSize(before, after)
		switch {
		case m.left >= size, !m.changed && max(m.limit.Part, m.limit.Whole) >= size:
			m.left -= size
		case !m.changed:
			if mixed := blend(before, after, m.limit.Part); mixed != nil {
				route, m.whole = mixed, false
			}
			m.left = 0
		default:
			route, m.left, m.whole = before, 0, false
		}
		m.changed = true
	}
	if route != nil {
		m.routes = append(m.routes, route)
	}
}
