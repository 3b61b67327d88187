package view

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/status/v1alpha1"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
	"github.com/seed-11a05479/kube-proxy/pkg/status"
)

// maxRepairs is the number of repairs that are remembered.
const maxRepairs = 100

// Config configures an Observer.
type Config struct {
	// Version, Mode and Started describe the program, Families are those that it serves.
	Version, Mode string
	Started       time.Time
	Families      []cluster.Family
	// Renderers are those of all modes, by their names.
	Renderers map[string]backend.Renderer
	// Node is the name of the Node, before a snapshot is known.
	Node string
	// Waiting names what the proxy waits for; nil if that is nothing.
	Waiting func() []string
	// Invalid returns what is wrong with the files that the proxy reads, by the reason of the problem.
	Invalid map[string]func() []string
	// Unowned returns the EndpointSlices without a Service: cluster.Builder.Unowned.
	Unowned func() []cluster.Unowned
	// Counter reads the kernel's counters; nil if the backend has none.
	Counter backend.ConnectionCounter
	// Tracked reads the open connections.
	Tracked status.Tracked
	// Clock returns the current time. Tests use a fake one.
	Clock clock.PassiveClock
}

// Observer keeps the state of a running proxy. It is a proxy.Observer; its other methods are safe for concurrent use.
type Observer struct {
	proxy.Ignore
	config Config

	mu sync.Mutex
	// snapshot and plan are those of the last sync that succeeded in any family, and inForce holds the plan of each family's: an earlier one
	// while the family fails. synced is when one succeeded in all families.
	snapshot *cluster.Snapshot
	plan     *plan.Plan
	inForce  map[cluster.Family]*plan.Plan
	synced   time.Time
	// last is the last sync. observed are the problems with Services of the one that is shown, and healthChecks those with their health
	// check node ports.
	last                   *v1alpha1.Sync
	observed, healthChecks plan.Observed
	// queued is when the first of the changes arrived that no sync has begun to program; zero without any.
	queued time.Time
	// pending holds the Services whose change is not programmed yet.
	pending map[cluster.ServiceName]bool
	// changes are the last changes of Services since the first successful sync.
	changes map[cluster.ServiceName]change
	repairs []v1alpha1.Repair
	history history
}

// change is the last change of a Service. A zero programmed means that it is not in force in all families yet.
type change struct {
	arrived, programmed time.Time
}

var _ proxy.Observer = (*Observer)(nil)

// New returns an Observer that has not seen a sync.
func New(config Config) *Observer {
	empty := &cluster.Snapshot{Node: &cluster.Node{Name: config.Node}}
	return &Observer{
		config: config, observed: plan.Observed{}, snapshot: empty, plan: plan.Compute(empty, &plan.Options{}, nil), inForce: map[cluster.Family]*plan.Plan{},
		changes: map[cluster.ServiceName]change{}, pending: map[cluster.ServiceName]bool{},
	}
}

// Queued records when a change arrived.
func (o *Observer) Queued(at time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.queued.IsZero() {
		o.queued = at
	}
}

// Synced records a sync. Its cost is proportional to what changed.
func (o *Observer) Synced(s *proxy.Sync) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.last = syncOf(s)
	for _, result := range s.Results {
		if result.Err == nil {
			o.inForce[result.Family] = cmp.Or(result.InForce, s.Plan)
		}
	}
	o.history.add(o.last, s.Finished, o.noteChanges(s))
	o.queued = time.Time{}
	if s.Shown != nil {
		o.snapshot, o.plan, o.observed = s.After, s.Plan, observedIn(s)
	}
	if s.Applied == nil {
		return
	}
	for name := range o.pending {
		c := o.changes[name]
		c.programmed = s.Finished
		o.changes[name] = c
	}
	clear(o.pending)
	o.synced = s.Finished
}

// noteChanges records which Services changed since the previous sync, and returns their number. Everything that is
// programmed until the first success is new and no change.
func (o *Observer) noteChanges(s *proxy.Sync) (changes int) {
	if o.synced.IsZero() {
		return 0
	}
	arrived := o.queued
	if arrived.IsZero() {
		arrived = s.Started
	}
	for name, changed := range s.Changes.Services {
		changes++
		if !changed.Is {
			delete(o.changes, name)
			delete(o.pending, name)
			continue
		}
		if !o.pending[name] {
			o.changes[name] = change{arrived: arrived}
			o.pending[name] = true
		}
	}
	return changes
}

// Drifted records a repair.
func (o *Observer) Drifted(d backend.Drift) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.repairs = append(o.repairs, v1alpha1.Repair{Time: o.config.Clock.Now(), Family: d.Family.String(), What: d.What, Writer: d.Writer, Details: d.Details})
	o.repairs = o.repairs[max(0, len(o.repairs)-maxRepairs):]
}

// Repairs returns the last repairs.
func (o *Observer) Repairs() *v1alpha1.RepairList {
	o.mu.Lock()
	defer o.mu.Unlock()
	return &v1alpha1.RepairList{TypeMeta: v1alpha1.Meta(v1alpha1.KindRepairList), Items: append([]v1alpha1.Repair{}, o.repairs...)}
}

// State returns the state that was last put in force in any family, with what is in force in each. It is empty before that.
func (o *Observer) State() *status.State {
	var waiting []string
	if o.config.Waiting != nil {
		waiting = o.config.Waiting()
	}
	problems := o.config.problems()
	o.mu.Lock()
	defer o.mu.Unlock()
	s := &status.State{
		Snapshot: o.snapshot, Plan: o.plan, InForce: maps.Clone(o.inForce), Changed: o.changed, Unowned: o.config.Unowned,
		Rules:    status.Rules{Mode: o.config.Mode, Renderers: o.config.Renderers, Families: o.config.Families},
		Observed: o.allObserved(), Counter: o.config.Counter, Tracked: o.config.Tracked, Now: o.config.Clock.Now(),
		Info: v1alpha1.Info{Version: o.config.Version, Mode: o.config.Mode, Families: status.Texts(o.config.Families), Started: &o.config.Started, Sync: o.last, Waiting: waiting, Problems: problems},
	}
	if !o.synced.IsZero() {
		s.Info.Synced = new(o.synced)
	}
	if !o.queued.IsZero() {
		s.Info.Pending = new(o.queued)
	}
	return s
}

// problems returns what is wrong with the files that the proxy reads.
func (c *Config) problems() (all []v1alpha1.Problem) {
	for _, reason := range slices.Sorted(maps.Keys(c.Invalid)) {
		for _, text := range c.Invalid[reason]() {
			all = append(all, v1alpha1.Problem{Reason: reason, Message: strings.ReplaceAll(text, "\n", "; ")})
		}
	}
	return all
}

// HealthChecks records the problems with health check node ports, instead of the earlier ones.
func (o *Observer) HealthChecks(found plan.Observed) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.healthChecks = found
}

// Observed returns the problems of Services that no plan shows.
func (o *Observer) Observed() plan.Observed {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.allObserved()
}

func (o *Observer) allObserved() plan.Observed {
	all := maps.Clone(o.observed)
	for name, problems := range o.healthChecks {
		all[name] = slices.Concat(all[name], problems)
	}
	return all
}

// observedIn returns the problems that a sync had with Services.
func observedIn(s *proxy.Sync) plan.Observed {
	all := plan.Observed{}
	for _, result := range s.Results {
		for _, r := range result.Refused {
			all[r.Service] = append(all[r.Service], plan.Problem{Reason: plan.ProblemRefused, Port: r.Port, Family: r.Family.String(),
				Message: "the kernel refuses the rules of " + r.String()})
		}
	}
	for _, d := range s.Delayed {
		all[d.Service] = append(all[d.Service], plan.Problem{Reason: plan.ProblemDelayed, Message: "the last change is delayed, and the earlier rules are in force, " +
			"at least in part: it needs so many rules that it is programmed in parts; split the Service, or change it less often"})
	}
	return all
}

// changed returns the last change of a Service.
func (o *Observer) changed(name cluster.ServiceName) *v1alpha1.Change {
	o.mu.Lock()
	defer o.mu.Unlock()
	c, ok := o.changes[name]
	if !ok {
		return nil
	}
	out := &v1alpha1.Change{Arrived: c.arrived}
	if !c.programmed.IsZero() {
		out.Programmed, out.Seconds = &c.programmed, new(c.programmed.Sub(c.arrived).Seconds())
	}
	return out
}

func syncOf(s *proxy.Sync) *v1alpha1.Sync {
	out := &v1alpha1.Sync{Started: s.Started, Seconds: s.Finished.Sub(s.Started).Seconds()}
	for _, result := range s.Results {
		family := v1alpha1.FamilySync{Family: result.Family.String(), Seconds: result.Duration.Seconds(), Elements: result.Elements, Rules: result.Rules}
		if result.Err != nil {
			family.Error = result.Err.Error()
		}
		out.Families = append(out.Families, family)
	}
	return out
}
