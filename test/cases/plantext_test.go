package cases

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// planText returns a plan as text, frontends first, in a stable order.
func planText(p *plan.Plan) string {
	var b strings.Builder
	for _, route := range p.Frontends.All() {
		is := route.Kind.String() + " of " + route.Name
		if route.IsCanary() {
			is = "the canary (--dataplane-canary)"
		}
		fmt.Fprintf(&b, "%s is %s\n", route.Frontend, is)
		describe(&b, route)
	}
	for frontend, claims := range p.Contested.All() {
		for route := range claims.Lost() {
			fmt.Fprintf(&b, "%s is not %s of %s: %s\n", frontend, route.Kind, route.Name, p.Lost(route))
		}
	}
	for name, service := range p.Services.All() {
		if h := service.HealthCheck; h != nil {
			fmt.Fprintf(&b, "health check of %s on port %d: %s\n", name, h.Port, healthText(h))
		}
		if n := service.WithheldExternalIPs; n > 0 {
			fmt.Fprintf(&b, "external IPs of %s that are not served: %d\n", name, n)
		}
		if n := service.WithheldPorts; n > 0 {
			fmt.Fprintf(&b, "ports of %s that are not served: %d\n", name, n)
		}
		if why := service.Unbalanced(); why != "" {
			fmt.Fprintf(&b, "%s is not balanced as it asks for: %s\n", name, why)
		}
		if why := service.Unfenced(); why != "" {
			fmt.Fprintf(&b, "%s is not bounded as it asks for: %s\n", name, why)
		}
	}
	list(&b, "hairpin through", p.Hairpins.All())
	fmt.Fprintf(&b, "node ports on %v\n", p.Node.NodePortAddrs)
	return b.String()
}

// healthText returns the number of local endpoints in each family.
func healthText(h *plan.HealthCheck) string {
	var counts []string
	for _, family := range slices.Sorted(maps.Keys(h.LocalEndpoints)) {
		counts = append(counts, fmt.Sprintf("%d in %s", h.LocalEndpoints[family], family))
	}
	return "local endpoints: " + strings.Join(counts, ", ")
}

// list writes the keys of a map on one line.
func list[K, V any](b *strings.Builder, title string, all func(func(K, V) bool)) {
	var keys []string
	all(func(key K, _ V) bool {
		keys = append(keys, fmt.Sprint(key))
		return true
	})
	if len(keys) > 0 {
		fmt.Fprintf(b, "%s %s\n", title, strings.Join(keys, " "))
	}
}

func describe(b *strings.Builder, r *plan.Route) {
	if len(r.SourceRanges) > 0 {
		fmt.Fprintf(b, "  only from %v\n", r.SourceRanges)
	}
	if r.ShortCut != nil {
		fmt.Fprintf(b, "  from local pods and the node itself: %s\n", poolText(r.ShortCut))
	}
	if r.Verdict == plan.Balance {
		fmt.Fprintf(b, "  policy %s, masquerade %s: %s\n", r.Policy, r.Masquerade, poolText(r.Pool))
	} else {
		fmt.Fprintf(b, "  policy %s: %s, %s\n", r.Policy, r.Verdict, r.Reason())
	}
	if r.RejectOnLocalhost {
		fmt.Fprintf(b, "  on localhost: %s\n", plan.Reject)
	}
	if r.Fence != nil {
		fmt.Fprintf(b, "  connections of the Service: at most %s\n", r.Fence)
	}
	if r.FastPath {
		fmt.Fprintf(b, "  fast path after %d packets\n", plan.FastPathAfter)
	}
	if r.Affinity != nil {
		fmt.Fprintf(b, "  a client stays with its endpoint for %s\n", r.Affinity.Timeout)
	}
}

// poolText returns the endpoints, each with its weight if these differ, and the reason.
func poolText(p *plan.Pool) string {
	var texts []string
	for i, endpoint := range p.Endpoints {
		text := endpoint.String()
		if p.Spread != nil && p.Spread.Weights != nil {
			text += fmt.Sprintf("*%d", p.Weight(i))
		}
		texts = append(texts, text)
	}
	if p.By() != cluster.Random {
		texts = append(texts, "by "+p.By().String())
	}
	return strings.TrimSpace(strings.Join(texts, " ") + " (" + p.Reason.String() + ")")
}
