package inspect

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/status/v1alpha1"
	"github.com/seed-11a05479/kube-proxy/pkg/status"
	"github.com/seed-11a05479/kube-proxy/pkg/terminal"
)

// PrintServices prints a list of Services, nothing of an empty one. rates are of an earlier reading; nil prints no rates.
func (p Printer) PrintServices(out io.Writer, list *v1alpha1.ServiceList, rates *Rates) error {
	if len(list.Items) > 0 {
		if err := p.services(out, list, rates); err != nil {
			return err
		}
	}
	for _, slice := range list.Unowned {
		text := fmt.Sprintf("EndpointSlice %s/%s (%s) belongs to the Service %q, which is not served: %s",
			slice.Namespace, slice.Name, terminal.Count(slice.Endpoints, "endpoint"), slice.Service, status.WhyNotServed)
		if _, err := fmt.Fprintf(out, "\n%s\n", terminal.Wrap(terminal.Printable(text), p.Width)); err != nil {
			return err
		}
	}
	if list.ConnectionsError != "" {
		if _, err := fmt.Fprintf(out, "\nNo counters: %s\n", terminal.Wrap(terminal.Printable(list.ConnectionsError), p.Width)); err != nil {
			return err
		}
	}
	return nil
}

func (p Printer) services(out io.Writer, list *v1alpha1.ServiceList, rates *Rates) error {
	t := &table{width: p.Width}
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
		t.add(head...)
	}
	items := list.Items
	if rates != nil {
		items = slices.Clone(items)
		slices.SortStableFunc(items, func(a, b v1alpha1.Service) int { return cmp.Compare(rates.service(&b), rates.service(&a)) })
	}
	for i := range items {
		t.add(p.row(&items[i], list.Time, rates)...)
	}
	return t.print(out)
}

func (p Printer) row(s *v1alpha1.Service, now time.Time, rates *Rates) []string {
	ready := fmt.Sprintf("%d/%d", s.Endpoints.Ready, s.Endpoints.All)
	row := []string{s.Name, p.few(s.ClusterIPs), p.few(portTexts(s.Ports)), ready, statusText(s)}
	if p.Wide {
		affinity := "-"
		if s.SessionAffinitySeconds > 0 {
			affinity = (time.Duration(s.SessionAffinitySeconds) * time.Second).String()
		}
		changed := "-"
		if s.Changed != nil {
			changed = status.Ago(now, s.Changed.Arrived)
		}
		row = []string{s.Name, p.few(s.ClusterIPs), p.few(slices.Concat(s.LoadBalancerIPs, s.ExternalIPs)), p.few(portTexts(s.Ports)),
			s.InternalTrafficPolicy + "/" + s.ExternalTrafficPolicy, ready, strconv.Itoa(s.Endpoints.Local),
			number(s.Connections), number(s.Refused), number(s.Limited), affinity, changed, statusText(s)}
	}
	if rates != nil {
		row = slices.Insert(row, len(row)-1, rate(rates.service(s)), rate(rates.refused(s)))
	}
	if p.Namespaces {
		row = slices.Insert(row, 0, s.Namespace)
	}
	for i := range row {
		row[i] = terminal.Printable(row[i])
	}
	return row
}

// portTexts lists ports as kubectl does.
func portTexts(ports []v1alpha1.Port) (texts []string) {
	for _, port := range ports {
		texts = append(texts, status.Port(port))
	}
	return texts
}

// statusText names the problems of a Service, each once.
func statusText(s *v1alpha1.Service) string {
	return cmp.Or(strings.Join(status.Reasons(s.Problems), ","), "OK")
}
