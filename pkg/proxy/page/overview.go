package page

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/status/v1alpha1"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
	"github.com/seed-11a05479/kube-proxy/pkg/status"
)

// overview is the page at /.
type overview struct {
	// Synced is false until the first sync has succeeded: nothing is known before.
	Synced   bool
	Tiles    []tile
	Charts   charts
	Findings []finding
	Repairs  []v1alpha1.Repair
	// Forgotten is the number of repairs that are not shown.
	Forgotten int
	List      list
}

// tile is a number with its label.
type tile struct {
	Label, Value, Note string
	// Tone is empty unless the number needs attention.
	Tone string
}

// finding is a reason why connections fail, with the Services that it applies to.
type finding struct {
	Reason, Tone string
	// Count is the number of objects, of the kind Noun; Cases are the first ones, More is the number of the others, and URL is
	// where all of them are.
	Count, More int
	Noun        string
	Cases       []findingCase
	URL         string
}

// findingCase is one object.
type findingCase struct {
	Name, URL, Message string
}

const (
	// maxCases is the number of objects that a finding names.
	maxCases = 1
	// maxRepairs is the number of repairs that the page shows.
	maxRepairs = 5
)

// index is what the overview needs of all Services, as long as nothing changes.
type index struct {
	plan     *plan.Plan
	sync     *v1alpha1.Sync
	observed plan.Observed
	services []status.Outline
	findings []finding
	// problems is the number of Services with problems.
	problems int
}

// indexOf returns the index of a state, from memory if it is still right.
func (p *Page) indexOf(s *status.State) *index {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.index != nil && p.index.plan == s.Plan && p.index.sync == s.Info.Sync && maps.EqualFunc(p.index.observed, s.Observed, slices.Equal) {
		return p.index
	}
	i := &index{plan: s.Plan, sync: s.Info.Sync, observed: s.Observed}
	for o := range s.Outlines() {
		i.services = append(i.services, o)
		if len(o.Problems) > 0 {
			i.problems++
		}
	}
	i.findings = findings(i.services)
	p.index = i
	return i
}

// findings groups the problems of Services by reason, the most frequent first.
func findings(services []status.Outline) []finding {
	of := map[string]*finding{}
	for _, o := range services {
		for i, problem := range o.Problems {
			f := of[problem.Reason]
			if f == nil {
				f = &finding{Reason: problem.Reason, Tone: toneOf(problem.Reason), Noun: "Service", URL: query{Show: problem.Reason}.url()}
				of[problem.Reason] = f
			}
			again := slices.ContainsFunc(o.Problems[:i], func(p v1alpha1.Problem) bool { return p.Reason == problem.Reason })
			if again {
				continue
			}
			if f.Count++; f.Count <= maxCases {
				name := o.Service.Name
				f.Cases = append(f.Cases, findingCase{name.String(), serviceURL(name.Namespace, name.Name), problem.Message})
			} else {
				f.More++
			}
		}
	}
	all := make([]finding, 0, len(of))
	for _, f := range of {
		all = append(all, *f)
	}
	slices.SortFunc(all, func(a, b finding) int {
		return cmp.Or(cmp.Compare(a.Tone, b.Tone), cmp.Compare(b.Count, a.Count), cmp.Compare(a.Reason, b.Reason))
	})
	return all
}

// toneOf returns bad for reasons that are hardly intended, and warn for those that may be.
func toneOf(reason string) string {
	switch reason {
	case plan.ProblemNoLocalEndpoints, plan.ProblemExternalIPsNotServed, plan.ProblemFamilyNotServed:
		return warn
	default:
		return bad
	}
}

// unowned is the finding about slices without a Service; nil without any.
func unowned(s *status.State) []finding {
	found := s.UnownedSlices(status.Filter{})
	if len(found) == 0 {
		return nil
	}
	f := finding{Reason: "SliceWithoutService", Tone: warn, Noun: "EndpointSlice", Count: len(found), More: max(0, len(found)-maxCases)}
	for _, slice := range found[:min(len(found), maxCases)] {
		f.Cases = append(f.Cases, findingCase{Name: slice.Namespace + "/" + slice.Name,
			Message: fmt.Sprintf("it belongs to the Service %q, which is not served: %s", slice.Service, status.WhyNotServed)})
	}
	return []finding{f}
}

// overview fills in the page at /.
func (p *Page) overview(r *http.Request, s *status.State, d *document) *userError {
	q, err := parseQuery(r.URL.Query())
	if err != nil {
		return err
	}
	i := p.indexOf(s)
	counts := p.meter.counters(r.Context(), subject{}, func(ctx context.Context) (*backend.Connections, error) {
		return s.Connections(ctx, s.Routes(status.Filter{}), false)
	})
	rows := newRows(s, i.services, &counts)
	history, repairs := p.config.Observer.History(), p.config.Observer.Repairs().Items
	o := &overview{
		Synced: s.Info.Synced != nil,
		Tiles:  tiles(s, i, rows, &counts, history),
		Charts: newCharts(history.Items), Findings: slices.Concat(i.findings, unowned(s)),
		List: newList(rows, q, &counts, i.findings),
	}
	slices.Reverse(repairs)
	o.Repairs, o.Forgotten = repairs[:min(len(repairs), maxRepairs)], max(0, len(repairs)-maxRepairs)
	d.Title, d.Overview = cmp.Or(d.Head.Node, "kube-proxy"), o
	return nil
}

// tiles are the numbers at the top.
func tiles(s *status.State, i *index, rows []row, counts *counters, history *v1alpha1.History) []tile {
	info := s.Describe()
	connections, refused := tile{Label: "New connections", Value: "–"}, tile{Label: "Refused packets", Value: "–"}
	switch {
	case counts.span() > 0:
		var all, rejected float64
		for k := range rows {
			all, rejected = all+rows[k].rate, rejected+rows[k].refusedRate
		}
		connections.Value, refused.Value = perSecond(all)+"/s", perSecond(rejected)+"/s"
		connections.Note = "in the last " + seconds(counts.span().Seconds())
		refused.Note = connections.Note
	case counts.err != nil:
		connections.Note = "the counters cannot be read"
	default:
		connections.Note = "known with the next reading"
	}
	synced := tile{Label: "Last sync", Value: "–", Note: "none has ended"}
	if last := info.Sync; last != nil {
		synced.Value = seconds(last.Seconds)
		var parts []string
		for _, f := range last.Families {
			if f.Error != "" {
				synced.Tone = bad
				parts = append(parts, f.Family+" failed")
			} else {
				parts = append(parts, f.Family+" "+seconds(f.Seconds))
			}
		}
		ended := last.Started.Add(time.Duration(last.Seconds * float64(time.Second)))
		synced.Note = status.Ago(s.Now, ended) + " ago; " + strings.Join(parts, ", ")
	}
	changes := 0
	for _, m := range history.Items {
		changes += m.Changes
	}
	changed := tile{Label: "Changes", Value: number(float64(changes)), Note: "in the last hour; none waits"}
	if info.Pending != nil {
		changed.Note, changed.Tone = "in the last hour; one waits for "+status.Ago(s.Now, *info.Pending), warn
	}
	problems := tile{Label: "With problems", Value: number(float64(i.problems)), Note: "of these Services"}
	if i.problems > 0 {
		problems.Tone = bad
	}
	return []tile{
		{Label: "Services", Value: number(float64(info.Services)), Note: number(float64(info.Frontends)) + " frontends"},
		problems, connections, refused, synced, changed,
	}
}
