package fleet

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/status/v1alpha1"
	"github.com/seed-11a05479/kube-proxy/pkg/terminal"
)

// Disagreement is a Service that nodes know differently.
type Disagreement struct {
	// Service is NAMESPACE/NAME.
	Service string `json:"service"`
	// Nodes differ from the node Than, which the largest number of nodes agrees with.
	Nodes []string `json:"nodes"`
	Than  string   `json:"than"`
	// Differences are those of the first of Nodes.
	Differences []string `json:"differences,omitempty"`
}

const (
	// maxCompared is how many nodes are compared with the reference, Service by Service.
	maxCompared = 20
	// maxExplained is how many Services are described.
	maxExplained = 20
	// maxDifferences is how many differences of a Service are listed.
	maxDifferences = 10
)

// compare adds the disagreements. While Services change, nodes differ for moments; only what differs in the same way in two readings is a
// disagreement.
func (f *Fleet) compare(ctx context.Context, targets []target, report *Report) {
	reference, odd := sides(report.Nodes)
	if len(odd) == 0 {
		return
	}
	if more := len(odd) - maxCompared; more > 0 {
		report.Notes = append(report.Notes, fmt.Sprintf("%s differ from %s; %d were compared Service by Service", terminal.Count(len(odd), "node"), report.Nodes[reference].Name, maxCompared))
		odd = odd[:maxCompared]
	}
	asked := append([]int{reference}, odd...)
	first := f.digests(ctx, targets, asked)
	select {
	case <-time.After(f.options.Settle):
	case <-ctx.Done():
	}
	second := f.digests(ctx, targets, asked)
	found := map[string]*Disagreement{}
	for i, at := range asked[1:] {
		if first[0] == nil || second[0] == nil || first[i+1] == nil || second[i+1] == nil {
			report.Notes = append(report.Notes, fmt.Sprintf("%s and %s could not be compared: one of them did not answer again", report.Nodes[reference].Name, report.Nodes[at].Name))
			continue
		}
		for _, service := range lasting(first[0], second[0], first[i+1], second[i+1]) {
			if found[service] == nil {
				found[service] = &Disagreement{Service: service, Than: report.Nodes[reference].Name}
			}
			found[service].Nodes = append(found[service].Nodes, report.Nodes[at].Name)
		}
	}
	for _, service := range slices.Sorted(maps.Keys(found)) {
		report.Disagreements = append(report.Disagreements, *found[service])
	}
	explained := min(maxExplained, len(report.Disagreements))
	f.each(explained, func(i int) { f.explain(ctx, targets, reference, &report.Disagreements[i]) })
}

// sides returns the first of those nodes that most agree with, and all that do not. Nodes that cannot be compared are on no side.
func sides(all []*Node) (reference int, odd []int) {
	sizes := map[string]int{}
	for _, n := range all {
		sizes[n.Digest]++
	}
	reference = -1
	for i, n := range all {
		if n.Digest != "" && (reference < 0 || sizes[n.Digest] > sizes[all[reference].Digest]) {
			reference = i
		}
	}
	for i, n := range all {
		if n.Digest != "" && n.Digest != all[reference].Digest {
			odd = append(odd, i)
		}
	}
	return reference, odd
}

// digests asks some nodes for the digests of all Services; nil stands for a node that does not answer.
func (f *Fleet) digests(ctx context.Context, targets []target, of []int) []map[string]string {
	all := make([]map[string]string, len(of))
	f.each(len(of), func(i int) {
		c, err := f.connect(targets[of[i]])
		if err != nil {
			return
		}
		defer c.pod.Close()
		if digests, err := c.Digests(ctx, true); err == nil {
			all[i] = digests.Services
		}
	})
	return all
}

// lasting returns the Services whose digests differ between two nodes in two readings, and did not change from one to the other.
func lasting(reference, referenceAgain, other, otherAgain map[string]string) (services []string) {
	names := maps.Clone(reference)
	maps.Copy(names, other)
	for name := range names {
		if reference[name] != other[name] && reference[name] == referenceAgain[name] && other[name] == otherAgain[name] {
			services = append(services, name)
		}
	}
	return services
}

// explain adds how the first node differs from the reference.
func (f *Fleet) explain(ctx context.Context, targets []target, reference int, d *Disagreement) {
	at, _ := slices.BinarySearchFunc(targets, d.Nodes[0], func(t target, name string) int { return strings.Compare(t.node, name) })
	var both [2]*v1alpha1.Service
	for i, of := range []int{reference, at} {
		c, err := f.connect(targets[of])
		if err != nil {
			return
		}
		both[i], err = service(ctx, c, d.Service)
		c.pod.Close()
		if err != nil {
			d.Differences = []string{fmt.Sprintf("not known: %v", err)}
			return
		}
	}
	d.Differences = differences(both[0], both[1], shown)
	if len(d.Differences) == 0 {
		d.Differences = []string{"differs in what is not shown"}
	}
	if more := len(d.Differences) - maxDifferences; more > 0 {
		d.Differences = append(d.Differences[:maxDifferences], fmt.Sprintf("%d more", more))
	}
}
