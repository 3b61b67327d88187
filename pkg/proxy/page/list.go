package page

import (
	"cmp"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-11a05479/kube-proxy/pkg/status"
)

// pageSize is the number of Services in a list.
const pageSize = 100

// query is what the list shows, as in the address of the page.
type query struct {
	// Search is words. A Service must have all of them in its name, namespace or addresses.
	Search string
	// Show is empty for all Services, problems for those with any, or the reason of a problem.
	Show string
	// Sort is the key of a column; Descending reverses it.
	Sort       string
	Descending bool
	// Page counts from 1.
	Page int
}

// anyProblem is the value of query.Show for Services with problems.
const anyProblem = "problems"

// parseQuery reads the parameters q, show, sort (-KEY is descending) and page.
func parseQuery(values url.Values) (query, *userError) {
	q := query{Search: strings.TrimSpace(values.Get("q")), Show: values.Get("show"), Page: 1}
	q.Sort, q.Descending = strings.CutPrefix(values.Get("sort"), "-")
	if q.Sort == "" {
		q.Sort = byName
	}
	if !slices.ContainsFunc(columns(), func(c heading) bool { return c.key == q.Sort && c.compare != nil }) {
		return q, &userError{http.StatusBadRequest, fmt.Sprintf("The list cannot be sorted by %q.", q.Sort)}
	}
	if text := values.Get("page"); text != "" {
		var err error
		if q.Page, err = strconv.Atoi(text); err != nil || q.Page < 1 {
			return q, &userError{http.StatusBadRequest, fmt.Sprintf("The list has no page %q.", text)}
		}
	}
	return q, nil
}

// url returns the address of the overview with this list.
func (q query) url() string {
	values := url.Values{}
	for key, value := range map[string]string{"q": q.Search, "show": q.Show, "sort": q.SortText()} {
		if value != "" {
			values.Set(key, value)
		}
	}
	if q.Page > 1 {
		values.Set("page", strconv.Itoa(q.Page))
	}
	if len(values) == 0 {
		return "/#services"
	}
	return "/?" + values.Encode() + "#services"
}

// SortText is the parameter sort, empty for the usual order.
func (q query) SortText() string {
	switch {
	case q.Descending:
		return "-" + q.Sort
	case q.Sort == byName:
		return ""
	default:
		return q.Sort
	}
}

// row is a Service in the list.
type row struct {
	status.Outline
	connections, refused uint64
	rate, refusedRate    float64
}

// newRows returns all Services with their counters.
func newRows(s *status.State, services []status.Outline, counts *counters) []row {
	rows := make([]row, len(services))
	for i, o := range services {
		rows[i].Outline = o
		if counts.now == nil {
			continue
		}
		r := &rows[i]
		for route := range s.RoutesOf(o.Service.Name) {
			at := route.Frontend
			connections, refused := counts.now.Frontends[at], counts.now.Refused[at]
			r.connections, r.refused = r.connections+connections, r.refused+refused
			if counts.span() > 0 {
				r.rate += counts.rate(connections, counts.earlier.Frontends[at])
				r.refusedRate += counts.rate(refused, counts.earlier.Refused[at])
			}
		}
	}
	return rows
}

// matches reports whether a Service is in the list.
func (q query) matches(r *row, words []string) bool {
	switch q.Show {
	case "":
	case anyProblem:
		if len(r.Problems) == 0 {
			return false
		}
	default:
		if !slices.Contains(r.reasons(), q.Show) {
			return false
		}
	}
	for _, word := range words {
		if !r.has(word) {
			return false
		}
	}
	return true
}

// has reports whether a word in lower case is part of the name, namespace or an address, or is an endpoint's address.
func (r *row) has(word string) bool {
	name := r.Service.Name
	if strings.Contains(strings.ToLower(name.Namespace+"/"+name.Name), word) {
		return true
	}
	for _, addr := range slices.Concat(r.Service.ClusterIPs, r.Service.LoadBalancerIPs(), r.Service.ExternalIPs()) {
		if strings.Contains(addr.String(), word) {
			return true
		}
	}
	addr, err := netip.ParseAddr(word)
	return err == nil && status.Filter{Address: addr}.Matches(r.Service)
}

// reasons returns the reasons of the problems, each once.
func (r *row) reasons() []string { return status.Reasons(r.Problems) }

// The keys of columns.
const (
	byName    = "name"
	byReady   = "ready"
	byTotal   = "connections"
	byRate    = "rate"
	byRefused = "refused"
	byStatus  = "status"
)

// heading is a column of the list. Those without compare cannot be sorted.
type heading struct {
	key, title string
	compare    func(a, b *row) int
	// numeric columns are aligned to the right, and sorted by the largest first.
	numeric bool
}

func columns() []heading {
	return []heading{
		{byName, "Service", func(a, b *row) int {
			return cmp.Or(strings.Compare(a.Service.Name.Namespace, b.Service.Name.Namespace), strings.Compare(a.Service.Name.Name, b.Service.Name.Name))
		}, false},
		{"addresses", "Addresses", nil, false},
		{"ports", "Ports", nil, false},
		{byReady, "Ready", func(a, b *row) int { return cmp.Compare(a.Endpoints.Ready, b.Endpoints.Ready) }, true},
		{byTotal, "Connections", func(a, b *row) int { return cmp.Compare(a.connections, b.connections) }, true},
		{byRate, "Per second", func(a, b *row) int { return cmp.Compare(a.rate, b.rate) }, true},
		{byRefused, "Refused", func(a, b *row) int { return cmp.Compare(a.refused, b.refused) }, true},
		{byStatus, "Status", func(a, b *row) int { return cmp.Compare(len(a.Problems), len(b.Problems)) }, false},
	}
}

// list is the table of Services.
type list struct {
	Query query
	// Choices are the values of Show.
	Choices  []choice
	Headings []headingCell
	Items    []item
	// First and Last are the positions of Items among Total that match; All is the number of Services.
	First, Last, Total, All int
	Previous, Next          string
	// Note says what the counters mean, or why there are none.
	Note string
}

// choice is a value of Show.
type choice struct {
	Value, Text string
	Selected    bool
}

// headingCell is a heading with the link that sorts by it.
type headingCell struct {
	Title, URL string
	// Sorted is ascending, descending or none, as in aria-sort; empty if the column cannot be sorted.
	Sorted  string
	Numeric bool
}

// item is a row of the table.
type item struct {
	Namespace, Name, URL string
	Addresses, Ports     []string
	// MoreAddresses and MorePorts are the numbers of those that are not shown.
	MoreAddresses, MorePorts   int
	Ready, All                 int
	Connections, Rate, Refused string
	Problems                   []problem
}

// problem is a reason with its tone.
type problem struct {
	Reason, Tone string
}

// newList selects, sorts and cuts the list.
func newList(rows []row, q query, counts *counters, found []finding) list {
	words := strings.Fields(strings.ToLower(q.Search))
	matching := []*row{}
	for i := range rows {
		if q.matches(&rows[i], words) {
			matching = append(matching, &rows[i])
		}
	}
	for _, c := range columns() {
		if c.key == q.Sort {
			slices.SortStableFunc(matching, func(a, b *row) int {
				if q.Descending {
					return c.compare(b, a)
				}
				return c.compare(a, b)
			})
		}
	}
	l := list{Query: q, Total: len(matching), All: len(rows), Note: noteOf(counts)}
	pages := max(1, (len(matching)+pageSize-1)/pageSize)
	q.Page = min(q.Page, pages)
	from, to := (q.Page-1)*pageSize, min(q.Page*pageSize, len(matching))
	for _, r := range matching[from:to] {
		l.Items = append(l.Items, newItem(r, counts))
	}
	l.First, l.Last = min(from+1, to), to
	l.Headings = headings(q)
	at := q
	if at.Page = q.Page - 1; at.Page >= 1 {
		l.Previous = at.url()
	}
	if at.Page = q.Page + 1; at.Page <= pages {
		l.Next = at.url()
	}
	l.Choices = []choice{{"", "All Services", q.Show == ""}, {anyProblem, "With problems", q.Show == anyProblem}}
	known := q.Show == "" || q.Show == anyProblem
	for _, f := range found {
		l.Choices = append(l.Choices, choice{f.Reason, f.Reason, q.Show == f.Reason})
		known = known || q.Show == f.Reason
	}
	if !known {
		l.Choices = append(l.Choices, choice{q.Show, q.Show, true})
	}
	return l
}

// noteOf says what the counters of the list mean.
func noteOf(counts *counters) string {
	switch {
	case counts.err != nil:
		return "There are no new counters: " + counts.err.Error() + "."
	case counts.now == nil:
		return "The counters are still being read."
	case counts.span() == 0:
		return "Rates are known with the next reading."
	default:
		return "Rates are those of the last " + seconds(counts.span().Seconds()) + "."
	}
}

// headings returns the headings. A click sorts, a second one reverses the order.
func headings(q query) (cells []headingCell) {
	for _, c := range columns() {
		cell := headingCell{Title: c.title, Numeric: c.numeric}
		if c.compare != nil {
			next := q
			next.Page, next.Sort, next.Descending = 1, c.key, c.numeric || c.key == byStatus
			cell.Sorted = "none"
			if q.Sort == c.key {
				next.Descending = !q.Descending
				cell.Sorted = "ascending"
				if q.Descending {
					cell.Sorted = "descending"
				}
			}
			cell.URL = next.url()
		}
		cells = append(cells, cell)
	}
	return cells
}

const (
	// maxAddresses and maxPorts bound what a row shows.
	maxAddresses = 3
	maxPorts     = 2
)

func newItem(r *row, counts *counters) item {
	service := r.Service
	i := item{
		Namespace: service.Name.Namespace, Name: service.Name.Name, URL: serviceURL(service.Name.Namespace, service.Name.Name),
		Ready: r.Endpoints.Ready, All: r.Endpoints.All, Connections: "–", Rate: "–", Refused: "–",
	}
	for _, addr := range slices.Concat(service.ClusterIPs, service.LoadBalancerIPs(), service.ExternalIPs()) {
		i.Addresses = append(i.Addresses, addr.String())
	}
	i.Addresses, i.MoreAddresses = cut(i.Addresses, maxAddresses)
	for _, port := range service.Ports {
		text := fmt.Sprintf("%d/%s", port.Port, port.Protocol)
		if port.NodePort != 0 {
			text = fmt.Sprintf("%d:%d/%s", port.Port, port.NodePort, port.Protocol)
		}
		i.Ports = append(i.Ports, text)
	}
	i.Ports, i.MorePorts = cut(i.Ports, maxPorts)
	if counts.now != nil {
		i.Connections, i.Refused = number(float64(r.connections)), number(float64(r.refused))
	}
	if counts.span() > 0 {
		i.Rate = perSecond(r.rate)
	}
	for _, reason := range r.reasons() {
		i.Problems = append(i.Problems, problem{reason, toneOf(reason)})
	}
	return i
}

// cut returns the first texts and the number of the others.
func cut(texts []string, limit int) (first []string, more int) {
	return texts[:min(len(texts), limit)], max(0, len(texts)-limit)
}
