package page

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/status/v1alpha1"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/status"
)

// service is the page of a Service.
type service struct {
	Namespace, Name string
	Problems        []v1alpha1.Problem
	Tiles           []tile
	Facts           []fact
	Ports           []port
	Note            string
}

// fact is a property of a Service.
type fact struct {
	Name   string
	Values []string
}

// port is a port with its addresses and endpoints.
type port struct {
	Title     string
	Addresses []v1alpha1.Address
	Families  []familyEndpoints
}

// familyEndpoints are the endpoints of a port in one IP family. Connections of one family are spread over these only.
type familyEndpoints struct {
	Family    string
	Endpoints []endpoint
	// More is the number of endpoints that are not shown.
	More int
	// Spread compares the endpoints that are used.
	Spread string
}

// endpoint is an endpoint of a port.
type endpoint struct {
	v1alpha1.Endpoint
	State, Tone string
	// Used are the traffic policies under which connections are sent to it; if there are none, Why is the reason.
	Used, Why string
	Count     string
	Share     share
}

// maxEndpoints is the number of endpoints of a port in one family that the page shows.
const maxEndpoints = 250

// service fills in the page of a Service.
func (p *Page) service(r *http.Request, s *status.State, d *document) *userError {
	name := cluster.ServiceName{Namespace: r.PathValue("namespace"), Name: r.PathValue("name")}
	if _, ok := s.Snapshot.Services.Get(name); !ok {
		return &userError{http.StatusNotFound, s.Missing(name)}
	}
	counts := p.meter.counters(r.Context(), name, func(ctx context.Context) (*backend.Connections, error) {
		return s.Connections(ctx, s.RoutesOf(name), true)
	})
	object := s.Service(name, counts.now)
	d.Title = name.String()
	d.Service = &service{
		Namespace: name.Namespace, Name: name.Name, Problems: object.Problems,
		Tiles: serviceTiles(s, object, &counts), Facts: facts(object), Note: noteOf(&counts),
	}
	for i := range object.Ports {
		d.Service.Ports = append(d.Service.Ports, newPort(&object.Ports[i]))
	}
	return nil
}

func serviceTiles(s *status.State, object *v1alpha1.Service, counts *counters) []tile {
	ready := tile{Label: "Ready endpoints", Value: fmt.Sprintf("%d / %d", object.Endpoints.Ready, object.Endpoints.All), Note: fmt.Sprintf("%d on this node", object.Endpoints.Local)}
	if object.Endpoints.Ready == 0 {
		ready.Tone = bad
	}
	total, rate := tile{Label: "Connections", Value: "–"}, tile{Label: "New connections", Value: "–"}
	refused := tile{Label: "Refused packets", Value: "–"}
	if object.Connections != nil {
		total.Value, refused.Value = number(float64(*object.Connections)), number(float64(*object.Refused))
		total.Note, refused.Note = "as the kernel counts them", "rejected or dropped"
	}
	if counts.span() > 0 {
		name := cluster.ServiceName{Namespace: object.Namespace, Name: object.Name}
		sum := 0.0
		for route := range s.RoutesOf(name) {
			sum += counts.rate(counts.now.Frontends[route.Frontend], counts.earlier.Frontends[route.Frontend])
		}
		rate.Value, rate.Note = perSecond(sum)+"/s", "in the last "+seconds(counts.span().Seconds())
	}
	changed := tile{Label: "Last change", Value: "–", Note: "none since the proxy started"}
	if c := object.Changed; c != nil {
		changed.Value, changed.Note = status.Ago(s.Now, c.Arrived)+" ago", "not programmed yet"
		if c.Seconds != nil {
			changed.Note = "in force after " + seconds(*c.Seconds)
		} else {
			changed.Tone = warn
		}
	}
	return []tile{ready, rate, total, refused, changed}
}

// facts are the properties of a Service that are set.
func facts(s *v1alpha1.Service) (all []fact) {
	add := func(name string, values ...string) {
		if len(values) > 0 {
			all = append(all, fact{name, values})
		}
	}
	add("Cluster IPs", s.ClusterIPs...)
	add("Load balancer IPs", s.LoadBalancerIPs...)
	add("External IPs", s.ExternalIPs...)
	add("Traffic policies", "internal "+s.InternalTrafficPolicy, "external "+s.ExternalTrafficPolicy)
	if s.SessionAffinitySeconds > 0 {
		add("Session affinity", (time.Duration(s.SessionAffinitySeconds) * time.Second).String())
	}
	add("Source ranges", s.SourceRanges...)
	if h := s.HealthCheck; h != nil {
		values := []string{fmt.Sprintf("port %d", h.Port)}
		for _, family := range []string{cluster.IPv4.String(), cluster.IPv6.String()} {
			if n, ok := h.LocalEndpoints[family]; ok {
				values = append(values, fmt.Sprintf("%s: %s here", family, plural(n, "endpoint")))
			}
		}
		add("Health check", values...)
	}
	if n := s.EndpointsNotListed; n > 0 {
		add("Not listed", count(n)+" entries of endpoints, of all ports together")
	}
	var names []string
	for _, slice := range s.Slices {
		names = append(names, slice.Name)
	}
	names, more := cut(names, 5)
	if more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	add("EndpointSlices", names...)
	return all
}

func newPort(of *v1alpha1.Port) port {
	p := port{Title: fmt.Sprintf("%d/%s", of.Port, of.Protocol), Addresses: of.Addresses}
	if of.Name != "" {
		p.Title = of.Name + " · " + p.Title
	}
	for _, family := range []cluster.Family{cluster.IPv4, cluster.IPv6} {
		if f := newFamily(family, of.Endpoints); len(f.Endpoints) > 0 {
			p.Families = append(p.Families, f)
		}
	}
	return p
}

// newFamily returns the endpoints of one family.
func newFamily(family cluster.Family, all []v1alpha1.Endpoint) familyEndpoints {
	f := familyEndpoints{Family: family.String()}
	var used []uint64
	number := 0
	for i := range all {
		if isIPv6 := strings.Count(all[i].Address, ":") > 1; isIPv6 != (family == cluster.IPv6) {
			continue
		}
		if n := all[i].Connections; n != nil {
			used = append(used, *n)
		}
		if number++; number <= maxEndpoints {
			f.Endpoints = append(f.Endpoints, newEndpoint(&all[i]))
		}
	}
	bars := shares(used)
	for i := range f.Endpoints {
		if f.Endpoints[i].Connections != nil {
			f.Endpoints[i].Share, bars = bars[0], bars[1:]
		}
	}
	f.Spread = spread(used)
	f.More = number - len(f.Endpoints)
	return f
}

func newEndpoint(of *v1alpha1.Endpoint) endpoint {
	e := endpoint{Endpoint: *of, Count: counterText(of.Connections), Used: strings.Join(of.UsedBy, ", ")}
	switch {
	case of.Terminating:
		e.State, e.Tone = "Terminating", warn
	case of.Ready:
		e.State, e.Tone = "Ready", good
	default:
		e.State, e.Tone = "Not ready", bad
	}
	if e.Used == "" {
		var why []string
		for _, l := range of.LeftOut {
			if !slices.Contains(why, l.Message) {
				why = append(why, l.Message)
			}
		}
		e.Why = strings.Join(why, "; ")
	}
	return e
}

// spread compares the connections of the endpoints that are used.
func spread(used []uint64) string {
	if len(used) < 2 {
		return ""
	}
	least, most, sum := used[0], used[0], uint64(0)
	for _, n := range used {
		least, most, sum = min(least, n), max(most, n), sum+n
	}
	if sum == 0 {
		return ""
	}
	mean := float64(sum) / float64(len(used))
	return fmt.Sprintf("%s share %s; each has %.0f to %.0f %% of the average, which is %s",
		plural(len(used), "endpoint"), plural(int(sum), "connection"), float64(least)/mean*100, float64(most)/mean*100, digits(mean))
}
