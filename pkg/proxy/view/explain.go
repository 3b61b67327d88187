package view

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/status/v1alpha1"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// Explain answers a question. Its errors are QuestionErrors.
func (s *State) Explain(q Question) (*v1alpha1.Explanation, error) {
	packet, notes, err := s.packet(q)
	if err != nil {
		return nil, err
	}
	path := s.inForce(cluster.FamilyOf(packet.To.Addr())).Explain(packet)
	out := &v1alpha1.Explanation{
		TypeMeta: v1alpha1.Meta(v1alpha1.KindExplanation),
		From:     cmp.Or(q.From, FromNode), Source: packet.Source.String(),
		To: packet.To.String(), Protocol: packet.Protocol.String(),
		Verdict: verdicts[path.Verdict], Reason: path.Why, Masqueraded: path.Masqueraded,
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
		out.Service, out.Port = path.Route.Service.String(), path.Route.Port
	}
	if path.Verdict == plan.Balance {
		out.Endpoints = texts(path.Pool.Endpoints)
	}
	return out, nil
}

// unservedIP explains that an address is not served although Services have it as an external IP.
func (s *State) unservedIP(addr netip.Addr) (steps []v1alpha1.Step) {
	for service := range s.Snapshot.Services.Values() {
		planned, ok := s.Plan.Services.Get(service.Name)
		if ok && planned.WithheldExternalIPs > 0 && slices.Contains(service.ExternalIPs, addr) {
			steps = append(steps, v1alpha1.Step{Subject: "address", Text: fmt.Sprintf(
				"%s is an external IP of %s; these are not served because the feature gate AllowServiceExternalIPs is off", addr, service.Name)})
		}
	}
	return steps
}
