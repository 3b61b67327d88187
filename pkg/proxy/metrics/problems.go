package metrics

import (
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// problems counts the Services that have a problem, by its reason: those of "kube-proxy service list".
type problems struct {
	plan cluster.Map[cluster.ServiceName, *plan.Service]
	// of holds the reasons of each Service that has a problem.
	of     map[cluster.ServiceName]map[string]bool
	counts map[string]int
}

// reasons returns all reasons.
func reasons() []string {
	return []string{plan.ProblemNoSuchPort, plan.ProblemNoEndpoints, plan.ProblemNoLocalEndpoints, plan.ProblemExternalIPsNotServed, plan.ProblemTooLarge}
}

func newProblems() *problems {
	return &problems{of: map[cluster.ServiceName]map[string]bool{}, counts: map[string]int{}}
}

// follow counts again what changed. A plan decides again about each Service that changed in the snapshot.
func (c *problems) follow(p *plan.Plan) {
	for name := range cluster.Changes(c.plan, p.Services) {
		c.look(name, p)
	}
	c.plan = p.Services
}

func (c *problems) look(name cluster.ServiceName, p *plan.Plan) {
	for reason := range c.of[name] {
		c.counts[reason]--
	}
	delete(c.of, name)
	found := problemsOf(name, p)
	for reason := range found {
		c.counts[reason]++
	}
	if len(found) > 0 {
		c.of[name] = found
	}
}

// problemsOf returns the reasons why connections to a Service fail on this node.
func problemsOf(name cluster.ServiceName, p *plan.Plan) map[string]bool {
	found := map[string]bool{}
	service, ok := p.Services.Get(name)
	if !ok {
		return nil
	}
	for range p.MissingPorts(name) {
		found[plan.ProblemNoSuchPort] = true
		break
	}
	if service.WithheldPorts > 0 {
		found[plan.ProblemTooLarge] = true
	}
	if service.WithheldExternalIPs > 0 {
		found[plan.ProblemExternalIPsNotServed] = true
	}
	for _, route := range service.Routes {
		if problem := route.Problem(); problem != "" {
			found[problem] = true
		}
	}
	return found
}
