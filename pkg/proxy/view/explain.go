package view

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/status/v1alpha1"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// Explain answers a question. Its errors are QuestionErrors.
func (s *State) Explain(q Question) (*v1alpha1.Explanation, error) {
	packet, notes, err := s.packet(q)
	if err != nil {
		return nil, err
	}
	path := s.path(packet)
	out := &v1alpha1.Explanation{
		TypeMeta: v1alpha1.Meta(v1alpha1.KindExplanation),
		From:     cmp.Or(q.From, FromNode), Source: packet.Source.String(),
		To: packet.To.String(), Protocol: packet.Protocol.String(),
		Verdict: verdicts[path.Verdict], Reason: path.Why,
	}
	for _, note := range notes {
		out.Steps = append(out.Steps, v1alpha1.Step{Subject: "question", Text: note})
	}
	if path.Verdict == plan.Pass {
		out.Steps = append(out.Steps, s.unservedIP(packet.To.Addr())...)
	}
	for _, step := range path.Steps {
		out.Steps = append(out.Steps, v1alpha1.Step(step))
	}
	if path.Route != nil {
		out.Service, out.Port = path.Route.Service.String(), path.Route.Port()
	}
	if path.Verdict == plan.Balance {
		out.Endpoints = texts(path.Pool.Endpoints)
		out.Masqueraded = !slices.ContainsFunc(path.Pool.Endpoints, func(e netip.AddrPort) bool { return !path.MasqueradedTo(e) })
		out.Hairpin = path.Hairpin.IsValid() && !out.Masqueraded
	}
	return out, nil
}

// path returns where the rules in force send a packet.
func (s *State) path(packet plan.Packet) (path plan.Path) {
	family := cluster.FamilyOf(packet.To.Addr())
	inForce := s.inForce(family)
	if mode, ok := s.Rules.Renderers[s.Rules.Mode].(backend.Explainer); ok {
		path = mode.Explain(inForce, packet)
	} else {
		path = inForce.Explain(packet)
	}
	route := cmp.Or(path.Route, s.Plan.RouteTo(packet.To, packet.Protocol))
	if route == nil {
		return path
	}
	port := route.Of().String()
	if at := slices.IndexFunc(s.Refused, func(r backend.Refusal) bool { return r.Family == family && r.Port == port }); at >= 0 {
		refused := plan.Step{Subject: "rules", Text: "the kernel refuses the rules of " + s.Refused[at].String()}
		path.Steps = append([]plan.Step{refused}, path.Steps...)
	}
	return path
}

// unservedIP explains that an address is not served although Services have it as an external IP.
func (s *State) unservedIP(addr netip.Addr) (steps []v1alpha1.Step) {
	for service := range s.Snapshot.Services.Values() {
		planned, ok := s.Plan.Services.Get(service.Name)
		if ok && planned.WithheldExternalIPs > 0 && slices.Contains(service.ExternalIPs(), addr) {
			steps = append(steps, v1alpha1.Step{Subject: "address", Text: fmt.Sprintf(
				"%s is an external IP of %s; these are not served because the feature gate AllowServiceExternalIPs is off", addr, service.Name)})
		}
	}
	return steps
}
