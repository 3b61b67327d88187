package inspect

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/status/v1alpha1"
	"github.com/seed-11a05479/kube-proxy/pkg/status"
	"github.com/seed-11a05479/kube-proxy/pkg/terminal"
)

// Service shows everything about one Service. rates may be nil.
func (p Printer) Service(s *v1alpha1.Service, rates *Rates) string {
	var b strings.Builder
	p.Wide = rates != nil // the columns with rates
	b.WriteString(p.summary(s, rates).String())
	for i := range s.Ports {
		port := &s.Ports[i]
		name := ""
		if port.Name != "" {
			name = " " + port.Name
		}
		fmt.Fprintf(&b, "\nPort%s %s\n%s%s", terminal.Printable(name), status.Port(*port), p.addresses(s, port, rates), p.endpoints(s, port, rates))
	}
	if len(s.Problems) > 0 {
		t := &terminal.Table{Width: p.Width, Indent: "  "}
		for _, problem := range s.Problems {
			t.Add(problem.Reason, problem.Message)
		}
		fmt.Fprintf(&b, "\nProblems\n%s", t)
	}
	return b.String()
}

// summary are the lines above the ports.
func (p Printer) summary(s *v1alpha1.Service, rates *Rates) *terminal.Table {
	t := &terminal.Table{Width: p.Width}
	add := func(name, value string) { t.Add(name+":", value) }
	add("Name", s.Name)
	add("Namespace", s.Namespace)
	add("Status", statusText(s))
	for _, fact := range status.Facts(s) {
		add(fact.Name, cmp.Or(strings.Join(fact.Values, ", "), "<none>"))
	}
	add("Endpoints", fmt.Sprintf("%d ready (%d on this node) of %d", s.Endpoints.Ready, s.Endpoints.Local, s.Endpoints.All))
	switch {
	case s.ConnectionsError != "":
		add("Connections", "unknown: "+s.ConnectionsError)
	case s.Connections != nil && rates != nil:
		add("Connections", fmt.Sprintf("%d, %s/s; refused packets: %d, %s/s", *s.Connections, rate(rates.service(s)), *s.Refused, rate(rates.refused(s))))
	case s.Connections != nil:
		add("Connections", fmt.Sprintf("%d; refused packets: %d", *s.Connections, *s.Refused))
	}
	if s.Limited != nil {
		add("Dropped by limits", fmt.Sprintf("%d first packets of connections", *s.Limited))
	}
	if s.Changed != nil && s.Time != nil {
		add("Last change", changeText(s.Changed, *s.Time))
	}
	return t
}

func changeText(c *v1alpha1.Change, now time.Time) string {
	text := status.Ago(now, c.Arrived) + " ago, "
	if c.Seconds == nil {
		return text + "not programmed yet"
	}
	took := time.Duration(*c.Seconds * float64(time.Second))
	return text + "programmed in " + took.Round(took/1000+time.Microsecond).String()
}

// addresses is the table of a port's addresses.
func (p Printer) addresses(s *v1alpha1.Service, port *v1alpha1.Port, rates *Rates) *terminal.Table {
	t := &terminal.Table{Width: p.Width, Indent: "  "}
	p.add(t, "ADDRESS", "KIND", "POLICY", "CONNS", "CONNS/S", "RESULT")
	for i := range port.Addresses {
		a := &port.Addresses[i]
		p.add(t, status.Address(*a), a.Kind, a.TrafficPolicy, number(a.Connections), rate(rates.of(addressKey(s, port, a))), resultText(a))
	}
	return t
}

// add adds a row; the column before the last has rates, and is left out without any.
func (p Printer) add(t *terminal.Table, cells ...string) {
	if !p.Wide {
		cells = slices.Delete(cells, len(cells)-2, len(cells)-1)
	}
	t.Add(cells...)
}

func resultText(a *v1alpha1.Address) string {
	text := map[string]string{v1alpha1.VerdictBalance: terminal.Count(a.Endpoints, "endpoint"), v1alpha1.VerdictReject: "rejected", v1alpha1.VerdictDrop: "dropped", v1alpha1.VerdictNotServed: "not served"}[a.Verdict]
	text = cmp.Or(text, a.Verdict) + ": " + a.Reason
	if a.Refused != nil && *a.Refused > 0 {
		text += fmt.Sprintf(" (%d packets)", *a.Refused)
	}
	if a.Limited != nil && *a.Limited > 0 {
		text += fmt.Sprintf(", %d packets dropped by limits", *a.Limited)
	}
	return text
}

// endpoints is the table of a port's endpoints.
func (p Printer) endpoints(s *v1alpha1.Service, port *v1alpha1.Port, rates *Rates) *terminal.Table {
	t := &terminal.Table{Width: p.Width, Indent: "  "}
	if len(port.Endpoints) == 0 {
		t.Add("no endpoints")
		return t
	}
	p.add(t, "ENDPOINT", "WHERE", "STATE", "CONNS", "CONNS/S", "USED")
	for i := range port.Endpoints {
		e := &port.Endpoints[i]
		p.add(t, e.Address, status.Where(e.Location), status.EndpointState(e), number(e.Connections), rate(rates.of(endpointKey(s, port, e.Address))), usedText(e))
	}
	return t
}

// usedText says under which policies an endpoint is used, and why not under the others.
func usedText(e *v1alpha1.Endpoint) string {
	if len(e.LeftOut) == 0 && e.Weight != nil {
		return fmt.Sprintf("yes, weight %d", *e.Weight)
	}
	if len(e.LeftOut) == 0 {
		return "yes"
	}
	var parts []string
	for _, policy := range e.UsedBy {
		parts = append(parts, policy+": yes")
	}
	for _, left := range e.LeftOut {
		text := "no: " + left.Message + " (slice " + e.Slice + ")"
		if len(e.UsedBy)+len(e.LeftOut) > 1 {
			text = left.TrafficPolicy + ": " + text
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, "; ")
}
