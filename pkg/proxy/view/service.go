package view

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/status/v1alpha1"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/serve"
	"github.com/seed-11a05479/kube-proxy/pkg/status"
)

// service is the page of a Service.
type service struct {
	*v1alpha1.Service
	Tiles []tile
	Facts []status.Fact
	Ports []port
	Note  string
}

// port is a port with its endpoints by IP family: connections of one family are spread over these only.
type port struct {
	*v1alpha1.Port
	Title    string
	Families []familyEndpoints
}

// familyEndpoints are the endpoints of a port in one IP family.
type familyEndpoints struct {
	Family    string
	Endpoints []endpoint
	// More is the number of endpoints that are not shown.
	More int
	// Spread compares the endpoints that are used.
	Spread string
}

// endpoint is an endpoint of a port. Bar compares its connections with those of others; nil if they are not counted.
type endpoint struct {
	*v1alpha1.Endpoint
	Bar *share
}

// maxEndpoints is the number of endpoints of a port in one family that the page shows.
const maxEndpoints = 250

// service fills in the page of a Service.
func (p *Page) service(r *http.Request, s *status.State, d *document) error {
	name := cluster.ServiceName{Namespace: r.PathValue("namespace"), Name: r.PathValue("name")}
	if err := notReady(s); err != nil {
		return err
	}
	if _, ok := s.Snapshot.Services.Get(name); !ok {
		return serve.Errorf(http.StatusNotFound, "%s", s.Missing(name))
	}
	counts := p.meter.counters(r.Context(), name, func(ctx context.Context) (*backend.Connections, error) {
		return s.Connections(ctx, s.RoutesOf(name), true)
	})
	object := s.Service(name, counts.now)
	d.Title, d.JSON = name.String(), v1alpha1.Path+serviceURL(name)+"?connections=true"
	d.Service = &service{Service: object, Tiles: serviceTiles(s, object, &counts), Facts: status.Facts(object), Note: counts.note()}
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
	total, refused := tile{Label: "Connections", Value: counterText(object.Connections)}, tile{Label: "Refused packets", Value: counterText(object.Refused)}
	if object.Connections != nil {
		total.Note, refused.Note = "as the kernel counts them", "rejected or dropped"
	}
	rate := tile{Label: "New connections", Value: unknown}
	if counts.span() > 0 {
		sum, _ := counts.rates(s.RoutesOf(cluster.ServiceName{Namespace: object.Namespace, Name: object.Name}))
		rate.Value, rate.Note = perSecond(sum)+"/s", "in the last "+seconds(counts.span().Seconds())
	}
	changed := tile{Label: "Last change", Value: unknown, Note: "none since the proxy started"}
	if c := object.Changed; c != nil {
		changed.Value, changed.Note, changed.Tone = status.Ago(s.Now, c.Arrived)+" ago", "not programmed yet", warn
		if c.Seconds != nil {
			changed.Note, changed.Tone = "in force after "+seconds(*c.Seconds), ""
		}
	}
	return []tile{ready, rate, total, refused, changed}
}

func newPort(of *v1alpha1.Port) port {
	p := port{Port: of, Title: strings.TrimPrefix(of.Name+" · "+status.Port(*of), " · ")}
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
	for i := range all {
		e := &all[i]
		if isIPv6 := strings.Count(e.Address, ":") > 1; isIPv6 != (family == cluster.IPv6) {
			continue
		}
		f.Endpoints = append(f.Endpoints, endpoint{Endpoint: e})
		if e.Connections != nil {
			used = append(used, *e.Connections)
		}
	}
	f.More = max(0, len(f.Endpoints)-maxEndpoints)
	f.Endpoints = f.Endpoints[:len(f.Endpoints)-f.More]
	spread := spreadOf(used)
	f.Spread = spread.String()
	for i := range f.Endpoints {
		if e := &f.Endpoints[i]; e.Connections != nil {
			e.Bar = spread.share(*e.Connections)
		}
	}
	return f
}
