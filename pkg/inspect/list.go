package inspect

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/status/v1alpha1"
	"github.com/seed-11a05479/kube-proxy/pkg/status"
	"github.com/seed-11a05479/kube-proxy/pkg/terminal"
)

// Services shows a list of Services, nothing of an empty one. rates are of an earlier reading; nil shows no rates.
func (p Printer) Services(list *v1alpha1.ServiceList, rates *Rates) string {
	var b strings.Builder
	if len(list.Items) > 0 {
		b.WriteString(p.services(list, rates))
	}
	for _, slice := range list.Unowned {
		text := fmt.Sprintf("EndpointSlice %s/%s (%s) belongs to the Service %q, which is not served: %s",
			slice.Namespace, slice.Name, terminal.Count(slice.Endpoints, "endpoint"), slice.Service, status.WhyNotServed)
		fmt.Fprintf(&b, "\n%s\n", terminal.Wrap(terminal.Printable(text), p.Width))
	}
	if list.ConnectionsError != "" {
		fmt.Fprintf(&b, "\nNo counters: %s\n", terminal.Wrap(terminal.Printable(list.ConnectionsError), p.Width))
	}
	return b.String()
}

func (p Printer) services(list *v1alpha1.ServiceList, rates *Rates) string {
	t := &terminal.Table{Width: p.Width}
	head := []string{"NAME", "CLUSTER-IP", "PORTS", "READY", "STATUS"}
	if p.Wide {
		head = []string{"NAME", "CLUSTER-IP", "EXTERNAL-IP", "PORTS", "POLICY", "READY", "LOCAL", "CONNS", "REFUSED", "LIMITED", "AFFINITY", "CHANGED", "STATUS"}
	}
	if rates != nil {
		head = slices.Insert(head, len(head)-1, "CONNS/S", "REFUSED/S")
	}
	if p.Namespaces {
		head = slices.Insert(head, 0, "NAMESPACE")
	}
	if !p.NoHeaders {
		t.Add(head...)
	}
	items := list.Items
	if rates != nil {
		items = slices.Clone(items)
		slices.SortStableFunc(items, func(a, b v1alpha1.Service) int { return cmp.Compare(rates.service(&b), rates.service(&a)) })
	}
	for i := range items {
		t.Add(p.row(&items[i], list.Time, rates)...)
	}
	return t.String()
}

func (p Printer) row(s *v1alpha1.Service, now time.Time, rates *Rates) []string {
	ready := fmt.Sprintf("%d/%d", s.Endpoints.Ready, s.Endpoints.All)
	row := []string{s.Name, p.few(s.ClusterIPs), p.few(status.Ports(s)), ready, statusText(s)}
	if p.Wide {
		affinity := "-"
		if s.SessionAffinitySeconds > 0 {
			affinity = (time.Duration(s.SessionAffinitySeconds) * time.Second).String()
		}
		changed := "-"
		if s.Changed != nil {
			changed = status.Ago(now, s.Changed.Arrived)
		}
		row = []string{s.Name, p.few(s.ClusterIPs), p.few(slices.Concat(s.LoadBalancerIPs, s.ExternalIPs)), p.few(status.Ports(s)),
			s.InternalTrafficPolicy + "/" + s.ExternalTrafficPolicy, ready, strconv.Itoa(s.Endpoints.Local),
			number(s.Connections), number(s.Refused), number(s.Limited), affinity, changed, statusText(s)}
	}
	if rates != nil {
		row = slices.Insert(row, len(row)-1, rate(rates.service(s)), rate(rates.refused(s)))
	}
	if p.Namespaces {
		row = slices.Insert(row, 0, s.Namespace)
	}
	return row
}

// statusText names the problems of a Service, each once.
func statusText(s *v1alpha1.Service) string {
	return cmp.Or(strings.Join(status.Reasons(s.Problems), ","), "OK")
}
