package status

import (
	"cmp"
	"errors"
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
	family := cluster.FamilyOf(packet.To.Addr())
	failed := Failing(&s.Info, family.String())
	if _, ok := s.InForce[family]; !ok && len(s.InForce) > 0 && slices.Contains(s.Rules.Families, family) {
		return nil, badQuestion("no rules of this proxy are in force in %s: %v", family, cmp.Or(failed, errors.New("no sync has succeeded there yet")))
	}
	if failed != nil {
		notes = append(notes, fmt.Sprintf("the last sync of %s failed: these are the rules of an earlier one", family))
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
	out.Steps = append(out.Steps, s.problemsOf(packet, &path)...)
	for _, step := range path.Steps {
		out.Steps = append(out.Steps, v1alpha1.Step(step))
	}
	if path.Route != nil {
		out.Service, out.Port = path.Route.Service.String(), path.Route.Port()
	}
	if path.Verdict == plan.Balance {
		out.Endpoints = Texts(path.Pool.Endpoints)
		if path.Pool.Spread != nil {
			out.Picked = path.Pool.Picking()
		}
		out.Masqueraded = !slices.ContainsFunc(path.Pool.Endpoints, func(e netip.AddrPort) bool { return !path.MasqueradedTo(e) })
		out.Hairpin = path.Hairpin.IsValid() && !out.Masqueraded
	}
	return out, nil
}

// path returns where the rules in force send a packet.
func (s *State) path(packet plan.Packet) plan.Path {
	family := cluster.FamilyOf(packet.To.Addr())
	inForce := s.inForce(family)
	if mode, ok := s.Rules.Renderers[s.Rules.Mode]; ok {
		return mode.Explain(inForce, packet)
	}
	return inForce.Explain(packet)
}

// problemsOf returns the problems of those Services that a packet is meant for: the Service that has the address, as far as its port
// and the packet's family are concerned, and those that have it although it is not served.
func (s *State) problemsOf(packet plan.Packet, path *plan.Path) (steps []v1alpha1.Step) {
	add := func(name cluster.ServiceName, concerns func(plan.Problem) bool) {
		for _, problem := range s.Plan.Problems(name, s.Observed) {
			if concerns(problem) {
				steps = append(steps, v1alpha1.Step{Subject: "problem", Text: problem.Reason + ": " + problem.Message})
			}
		}
	}
	addr := packet.To.Addr()
	family := cluster.FamilyOf(addr).String()
	if route := cmp.Or(path.Route, s.Plan.RouteTo(packet.To, packet.Protocol)); route != nil {
		port := route.Of().String()
		add(route.Service, func(p plan.Problem) bool {
			return p.Address == "" && p.Port == port && (p.Family == "" || p.Family == family) || p.Reason == plan.ProblemDelayed
		})
		return steps
	}
	for service := range s.Snapshot.Services.Values() {
		external := slices.Contains(service.ExternalIPs(), addr)
		if external || slices.Contains(service.LoadBalancerIPs(), addr) || slices.Contains(service.ClusterIPs, addr) {
			add(service.Name, func(p plan.Problem) bool {
				return p.Address == addr.String() || external && p.Reason == plan.ProblemExternalIPsNotServed || p.Reason == plan.ProblemTooLarge
			})
		}
	}
	return steps
}
