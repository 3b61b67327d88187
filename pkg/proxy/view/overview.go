package view

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
	Tiles  []tile
	Charts []chart
	// Minutes are those with a sync, the newest first.
	Minutes  []v1alpha1.Minute
	Findings []finding
	// Fine is what no findings mean.
	Fine    string
	Repairs []v1alpha1.Repair
	// Forgotten is the number of repairs that are not shown.
	Forgotten int
	List      list
}

// tile is a number with its label. Tone is empty unless the number needs attention.
type tile struct {
	Label, Value, Note, Tone string
}

// finding is a reason why connections fail, with the objects that it applies to.
type finding struct {
	Reason, Tone string
	// Count is the number of objects, of the kind Noun, More that without the first, and URL is where all of them are.
	Count, More int
	Noun, URL   string
	// First names the first object, FirstURL is its page, and Message says what is wrong with it.
	First, FirstURL, Message string
}

// shownRepairs is the number of repairs that the page shows.
const shownRepairs = 5

// index is what the overview needs of all Services, as long as nothing changes.
type index struct {
	plan     *plan.Plan
	sync     *v1alpha1.Sync
	observed plan.Observed
	services []status.Head
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
	for head := range s.Heads(status.Filter{}) {
		i.services = append(i.services, head)
		if len(head.Problems) > 0 {
			i.problems++
		}
	}
	i.findings = findings(i.services)
	p.index = i
	return i
}

// findings groups the problems of Services by reason, the most frequent first.
func findings(services []status.Head) (all []finding) {
	for _, head := range services {
		for _, reason := range status.Reasons(head.Problems) {
			i := slices.IndexFunc(all, func(f finding) bool { return f.Reason == reason })
			if i < 0 {
				name := head.Service.Name
				at := slices.IndexFunc(head.Problems, func(p v1alpha1.Problem) bool { return p.Reason == reason })
				all = append(all, finding{Reason: reason, Tone: toneOf(reason), Noun: "Service", Count: 1, URL: query{Show: reason}.url(),
					First: name.String(), FirstURL: serviceURL(name), Message: head.Problems[at].Message})
				continue
			}
			all[i].Count++
			all[i].More++
		}
	}
	slices.SortFunc(all, func(a, b finding) int {
		return cmp.Or(cmp.Compare(a.Tone, b.Tone), cmp.Compare(b.Count, a.Count), cmp.Compare(a.Reason, b.Reason))
	})
	return all
}

// unowned is the finding about slices without a Service; none without any, and before Services are known.
func unowned(s *status.State) []finding {
	found := s.UnownedSlices(status.Filter{})
	if len(found) == 0 || s.NotInForce() != nil {
		return nil
	}
	return []finding{{Reason: "SliceWithoutService", Tone: warn, Noun: "EndpointSlice", Count: len(found), More: len(found) - 1, First: found[0].Namespace + "/" + found[0].Name,
		Message: fmt.Sprintf("it belongs to the Service %q, which is not served: %s", found[0].Service, status.WhyNotServed)}}
}

// overview fills in the page at /.
func (p *Page) overview(r *http.Request, s *status.State, d *document) error {
	q, err := parseQuery(r.URL.Query())
	if err != nil {
		return err
	}
	i := p.indexOf(s)
	counts := p.meter.counters(r.Context(), subject{}, func(ctx context.Context) (*backend.Connections, error) {
		return s.Connections(ctx, s.Routes(status.Filter{}), false)
	})
	rows := newRows(s, i.services, &counts)
	history, repairs := p.observer.History().Items, p.observer.Repairs().Items
	slices.Reverse(repairs)
	d.Title, d.JSON = cmp.Or(d.Head.Node, "kube-proxy"), v1alpha1.Path+"/services?connections=true"
	d.Overview = &overview{
		Tiles:  tiles(s, i, rows, &counts, history),
		Charts: charts(history), Minutes: busy(history), Findings: slices.Concat(i.findings, unowned(s)), Fine: fine(s, &d.Head),
		List:    newList(s, rows, q, &counts, i.findings),
		Repairs: repairs[:min(len(repairs), shownRepairs)], Forgotten: max(0, len(repairs)-shownRepairs),
	}
	return nil
}

// unsynced is what is known of Services before anything is in force.
const unsynced = "Nothing is known before the first sync."

// fine says what it means that there are no findings.
func fine(s *status.State, h *head) string {
	switch {
	case s.NotInForce() != nil:
		return unsynced
	case h.Why != "" || len(h.Problems) > 0:
		return "No Service has a problem of its own."
	}
	return "This node serves connections to all Services."
}

// tiles are the numbers at the top.
func tiles(s *status.State, i *index, rows []row, counts *counters, history []v1alpha1.Minute) []tile {
	info := s.Describe()
	connections, refused := tile{Label: "New connections", Value: unknown}, tile{Label: "Refused packets", Value: unknown}
	switch {
	case s.NotInForce() != nil:
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
	changed := tile{Label: "Changes", Value: count(total(history).Changes), Note: "in the last hour; none pending"}
	if info.Pending != nil {
		changed.Note, changed.Tone = "in the last hour; one pending for "+status.Ago(s.Now, *info.Pending), warn
	}
	services, problems := tile{Label: "Services", Value: unknown}, tile{Label: "With problems", Value: unknown}
	if s.NotInForce() == nil {
		services.Value, services.Note = count(info.Services), count(info.Frontends)+" frontends"
		problems.Value, problems.Note = count(i.problems), "of these Services"
	}
	if i.problems > 0 {
		problems.Tone = bad
	}
	return []tile{
		services, problems, connections, refused, syncTile(s.Now, info.Sync), changed,
	}
}

// syncTile is the tile of the last sync, which may be nil.
func syncTile(now time.Time, last *v1alpha1.Sync) tile {
	t := tile{Label: "Last sync", Value: unknown, Note: "none has ended"}
	if last == nil {
		return t
	}
	var parts []string
	for _, f := range last.Families {
		if f.Error == "" {
			parts = append(parts, f.Family+" "+seconds(f.Seconds))
			continue
		}
		t.Tone = bad
		parts = append(parts, f.Family+" failed")
	}
	ended := last.Started.Add(time.Duration(last.Seconds * float64(time.Second)))
	t.Value, t.Note = seconds(last.Seconds), status.Ago(now, ended)+" ago; "+strings.Join(parts, ", ")
	return t
}
