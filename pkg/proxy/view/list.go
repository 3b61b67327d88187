package view

import (
	"cmp"
	"maps"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/status/v1alpha1"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/serve"
	"github.com/seed-11a05479/kube-proxy/pkg/status"
)

// pageSize is the number of Services in a list.
const pageSize = 100

// query is what the list shows, as in the address of the page.
type query struct {
	// Search is words. A Service must have all of them in its name, namespace, addresses or ports.
	Search string
	// Show is empty for all Services, problems for those with any, or the reason of a problem.
	Show string
	// Sort is the key of a column, after - if it is descending; empty is by name.
	Sort string
	// Page counts from 1.
	Page int
}

// anyProblem is the value of query.Show for Services with problems.
const anyProblem = "problems"

// parseQuery reads the parameters q, show, sort and page. Its errors are serve.Errors.
func parseQuery(values url.Values) (query, error) {
	q := query{Search: strings.TrimSpace(values.Get("q")), Show: values.Get("show"), Sort: values.Get("sort"), Page: 1}
	if by, _ := q.column(); by.compare == nil {
		return q, serve.Errorf(http.StatusBadRequest, "The list cannot be sorted by %q.", by.key)
	}
	if text := values.Get("page"); text != "" {
		var err error
		if q.Page, err = strconv.Atoi(text); err != nil || q.Page < 1 {
			return q, serve.Errorf(http.StatusBadRequest, "The list has no page %q.", text)
		}
	}
	return q, nil
}

// column returns the column to sort by, which has its key only if there is none.
func (q query) column() (by column, descending bool) {
	key, descending := strings.CutPrefix(q.Sort, "-")
	for _, by = range columns() {
		if by.key == cmp.Or(key, byName) {
			return by, descending
		}
	}
	return column{key: key}, descending
}

// url returns the address of the overview with this list.
func (q query) url() string {
	values := url.Values{"q": {q.Search}, "show": {q.Show}, "sort": {q.Sort}, "page": {strconv.Itoa(q.Page)}}
	maps.DeleteFunc(values, func(key string, value []string) bool { return value[0] == "" || key == "page" && q.Page <= 1 })
	if len(values) == 0 {
		return "/#services"
	}
	return "/?" + values.Encode() + "#services"
}

// at returns the query for another page; its address is empty if there is none.
func (q query) at(page, pages int) string {
	if page < 1 || page > pages {
		return ""
	}
	q.Page = page
	return q.url()
}

// matches reports whether a Service is in the list.
func (q query) matches(s *status.State, r *row, words []string) bool {
	shown := q.Show == "" || slices.ContainsFunc(r.Problems, func(p v1alpha1.Problem) bool { return q.Show == anyProblem || q.Show == p.Reason })
	return shown && !slices.ContainsFunc(words, func(word string) bool { return !r.has(s, word) })
}

// row is a Service with its counters.
type row struct {
	status.Head
	connections, refused uint64
	rate, refusedRate    float64
}

// newRows returns Services with their counters.
func newRows(s *status.State, services []status.Head, counts *counters) []row {
	rows := make([]row, len(services))
	for i, head := range services {
		r := &rows[i]
		r.Head = head
		if counts.now == nil {
			continue
		}
		routes := s.RoutesOf(head.Service.Name)
		for route := range routes {
			r.connections += counts.now.Frontends[route.Frontend]
			r.refused += counts.now.Refused[route.Frontend]
		}
		r.rate, r.refusedRate = counts.rates(routes)
	}
	return rows
}

// has reports whether a word in lower case is part of the name, namespace or an address, or is a port or node port, or an address that
// a filter selects the Service by.
func (r *row) has(s *status.State, word string) bool {
	if strings.Contains(strings.ToLower(r.Service.Name.String()), word) {
		return true
	}
	for _, addr := range slices.Concat(r.Service.ClusterIPs, r.Service.LoadBalancerIPs(), r.Service.ExternalIPs()) {
		if strings.Contains(addr.String(), word) {
			return true
		}
	}
	if port, err := strconv.ParseUint(word, 10, 16); err == nil && port > 0 {
		return slices.ContainsFunc(r.Service.Ports, func(p cluster.ServicePort) bool { return uint64(p.Port) == port || uint64(p.NodePort) == port })
	}
	addr, err := netip.ParseAddr(word)
	return err == nil && s.Selects(status.Filter{Address: addr}, r.Service)
}

// byName is the key of the column that the list is sorted by unless the query says otherwise.
const byName = "name"

// column is a column of the list. Those without compare cannot be sorted.
type column struct {
	key, Title string
	compare    func(a, b *row) int
	// Numeric columns are aligned to the right.
	Numeric bool
	// URL sorts by the column, or reverses the order. Sorted is ascending, descending or none, as in aria-sort. Both are empty if it cannot
	// be sorted.
	URL, Sorted string
}

// columns begin with what a narrow screen should show.
func columns() []column {
	return []column{
		{key: byName, Title: "Service", compare: func(a, b *row) int { return a.Service.Name.Compare(b.Service.Name) }},
		{key: "status", Title: "Status", compare: func(a, b *row) int { return cmp.Compare(len(a.Problems), len(b.Problems)) }},
		{key: "ready", Title: "Ready", Numeric: true, compare: func(a, b *row) int { return cmp.Compare(a.Endpoints.Ready, b.Endpoints.Ready) }},
		{key: "addresses", Title: "Addresses"},
		{key: "ports", Title: "Ports"},
		{key: "connections", Title: "Connections", Numeric: true, compare: func(a, b *row) int { return cmp.Compare(a.connections, b.connections) }},
		{key: "rate", Title: "Per second", Numeric: true, compare: func(a, b *row) int { return cmp.Compare(a.rate, b.rate) }},
		{key: "refused", Title: "Refused", Numeric: true, compare: func(a, b *row) int { return cmp.Compare(a.refused, b.refused) }},
	}
}

// list is the table of Services.
type list struct {
	// query is with the page that is shown.
	query
	// Choices are the values of Show.
	Choices []choice
	Columns []column
	Rows    []listed
	// First and Last are the positions of Rows among Total that match; All is the number of Services.
	First, Last, Total, All int
	// Narrowed reports whether not all Services are asked for.
	Narrowed       bool
	Previous, Next string
	// Note says what the counters mean, or why there are none. None says why there are no Services.
	Note, None string
}

// choice is a value of Show.
type choice struct {
	Value, Text string
	Selected    bool
}

// listed is a row of the table.
type listed struct {
	*v1alpha1.Service
	URL, Rate string
}

// newList selects, sorts and cuts the list.
func newList(s *status.State, rows []row, q query, counts *counters, found []finding) list {
	words := strings.Fields(strings.ToLower(q.Search))
	matching := []*row{}
	for i := range rows {
		if q.matches(s, &rows[i], words) {
			matching = append(matching, &rows[i])
		}
	}
	by, descending := q.column()
	slices.SortStableFunc(matching, func(a, b *row) int {
		if descending {
			a, b = b, a
		}
		return by.compare(a, b)
	})
	pages := max(1, (len(matching)+pageSize-1)/pageSize)
	q.Page = min(q.Page, pages)
	from, to := (q.Page-1)*pageSize, min(q.Page*pageSize, len(matching))
	l := list{
		query: q, Narrowed: q.Search != "" || q.Show != "", Columns: headings(q), Choices: choices(q.Show, found), Note: counts.note(),
		First: min(from+1, to), Last: to, Total: len(matching), All: len(rows), Previous: q.at(q.Page-1, pages), Next: q.at(q.Page+1, pages),
		None: "There are no Services.",
	}
	if s.NotInForce() != nil {
		l.None = unsynced
	}
	for _, r := range matching[from:to] {
		name, rate := r.Service.Name, unknown
		if counts.span() > 0 {
			rate = perSecond(r.rate)
		}
		l.Rows = append(l.Rows, listed{s.Summary(r.Head, counts.now), serviceURL(name), rate})
	}
	return l
}

// choices are the values of Show: those with a meaning of their own, the reasons that were found, and the one that is shown.
func choices(show string, found []finding) []choice {
	all := []choice{{"", "All Services", show == ""}, {anyProblem, "With problems", show == anyProblem}}
	for _, f := range found {
		all = append(all, choice{f.Reason, f.Reason, show == f.Reason})
	}
	if !slices.ContainsFunc(all, func(c choice) bool { return c.Selected }) {
		all = append(all, choice{show, show, true})
	}
	return all
}

// headings returns the columns with their links. A click sorts, numbers by the largest first; a second one reverses the order.
func headings(q query) []column {
	all := columns()
	by, descending := q.column()
	for i := range all {
		c := &all[i]
		if c.compare == nil {
			continue
		}
		down := c.key != byName
		c.Sorted = "none"
		if c.key == by.key {
			c.Sorted = map[bool]string{false: "ascending", true: "descending"}[descending]
			down = !descending
		}
		next := query{Search: q.Search, Show: q.Show, Sort: strings.TrimPrefix(c.key, byName)} // which is the default
		if down {
			next.Sort = "-" + c.key
		}
		c.URL = next.url()
	}
	return all
}
