package cases

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/source/manifests"
)

// event is one update of a source: an object that was set or deleted.
type event struct {
	object  runtime.Object
	deleted bool
}

// apply applies the event to an update.
func (e event) apply(u *cluster.Update) {
	if !e.deleted {
		manifests.Apply(u, []runtime.Object{e.object})
		return
	}
	remove(u, e.object)
}

// orders are the orders in which objects may arrive. After each of them all objects exist.
var orders = map[string]func([]runtime.Object, *rand.Rand) []event{
	"as written": func(o []runtime.Object, _ *rand.Rand) []event { return arrive(o) },
	"backwards": func(o []runtime.Object, _ *rand.Rand) []event {
		o = slices.Clone(o)
		slices.Reverse(o)
		return arrive(o)
	},
	"services first": func(o []runtime.Object, _ *rand.Rand) []event { return arrive(slicesLast(o)) },
	"slices first": func(o []runtime.Object, _ *rand.Rand) []event {
		o = slicesLast(o)
		slices.Reverse(o)
		return arrive(o)
	},
	"repeated": func(o []runtime.Object, _ *rand.Rand) []event { return append(arrive(o), arrive(o)...) },
	"removed and back": func(o []runtime.Object, rnd *rand.Rand) []event {
		events := arrive(o)
		for _, i := range rnd.Perm(len(o)) {
			events = append(events, event{o[i], true}, event{o[i], false})
		}
		return events
	},
	"all removed and back": func(o []runtime.Object, rnd *rand.Rand) []event {
		events := arrive(o)
		for _, i := range rnd.Perm(len(o)) {
			events = append(events, event{o[i], true})
		}
		return append(events, arrive(o)...)
	},
	"shuffled": func(o []runtime.Object, rnd *rand.Rand) []event {
		o = slices.Clone(o)
		rnd.Shuffle(len(o), func(i, j int) { o[i], o[j] = o[j], o[i] })
		return arrive(o)
	},
	"endpoints one by one": func(o []runtime.Object, _ *rand.Rand) []event { return growing(o) },
	"split in two slices":  func(o []runtime.Object, _ *rand.Rand) []event { return arrive(halved(o)) },
}

func arrive(objects []runtime.Object) []event {
	var events []event
	for _, o := range objects {
		events = append(events, event{o, false})
	}
	return events
}

func slicesLast(objects []runtime.Object) []runtime.Object {
	objects = slices.Clone(objects)
	slices.SortStableFunc(objects, func(a, b runtime.Object) int {
		rank := func(o runtime.Object) int {
			if _, ok := o.(*discoveryv1.EndpointSlice); ok {
				return 1
			}
			return 0
		}
		return rank(a) - rank(b)
	})
	return objects
}

// growing sets slices without endpoints first and then adds one endpoint after another.
func growing(objects []runtime.Object) []event {
	var events []event
	for _, o := range objects {
		if slice, ok := o.(*discoveryv1.EndpointSlice); ok {
			for n := range slice.Endpoints {
				part := slice.DeepCopy()
				part.Endpoints = part.Endpoints[:n]
				events = append(events, event{part, false})
			}
		}
		events = append(events, event{o, false})
	}
	return events
}

// halved splits each slice into two.
func halved(objects []runtime.Object) []runtime.Object {
	var all []runtime.Object
	for _, o := range objects {
		slice, ok := o.(*discoveryv1.EndpointSlice)
		if !ok || len(slice.Endpoints) < 2 {
			all = append(all, o)
			continue
		}
		first, second := slice.DeepCopy(), slice.DeepCopy()
		first.Endpoints, second.Endpoints = first.Endpoints[:1], second.Endpoints[1:]
		second.Name += "-second"
		all = append(all, second, first)
	}
	return all
}

// TestOrders adds the objects of each case in different orders, in updates of one or several events, and computes a plan
// after each update. Every order must result in the plan and the ruleset of the case.
func TestOrders(t *testing.T) {
	entered := 0
	for _, c := range load(t) {
		want := outcome(c, c.Plan())
		for name, order := range orders {
			for _, seed := range []uint64{0, 3} { // one event at a time, and up to four
				rnd := rand.New(rand.NewPCG(seed, 1))
				builder := c.newBuilder(c.Objects)
				var p *plan.Plan
				for events := order(c.Objects, rnd); len(events) > 0; {
					n := min(1+rnd.IntN(1+int(seed)), len(events))
					_ = builder.Update(func(u *cluster.Update) { // invalid objects may be part of the case
						for _, e := range events[:n] {
							e.apply(u)
						}
					})
					events = events[n:]
					p = plan.Compute(builder.Snapshot(), c.Options, p)
				}
				entered++
				if diff := cmp.Diff(want, outcome(c, p)); diff != "" {
					t.Fatalf("%s, %s, seed %d (-case +this order):\n%s", c.Name, name, seed, diff)
				}
			}
		}
	}
	t.Logf("%d orders", entered)
}

// outcome returns a plan as text, and its nftables ruleset.
func outcome(c *Case, p *plan.Plan) []string {
	return []string{planText(p), nftMode.Render(p, c.Family)}
}
