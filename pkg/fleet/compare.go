package fleet

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/status/v1alpha1"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
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
	// maxServices is how many Services of a node are compared with the reference's.
	maxServices = 1000
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
	note := func(format string, args ...any) { report.Notes = append(report.Notes, fmt.Sprintf(format, args...)) }
	than := report.Nodes[reference].Name
	if len(odd) > maxCompared {
		note("%s differ from %s; %d were compared Service by Service", terminal.Count(len(odd), "node"), than, maxCompared)
		odd = odd[:maxCompared]
	}
	first := f.read(ctx, targets, reference, odd)
	select {
	case <-time.After(f.options.Settle):
	case <-ctx.Done():
	}
	second := f.read(ctx, targets, reference, odd)
	found := map[string]*Disagreement{}
	for i, at := range odd {
		node := report.Nodes[at].Name
		services, ok := lasting(first, second, i)
		if !ok {
			note("%s and %s could not be compared: one of them did not answer again", than, node)
		}
		if n := second.differ[i]; n > maxServices {
			note("%s differs from %s in %s; the first %d were compared", node, than, terminal.Count(n, "Service"), maxServices)
		}
		for _, service := range services {
			if found[service] == nil {
				found[service] = &Disagreement{Service: service, Than: than}
			}
			found[service].Nodes = append(found[service].Nodes, node)
		}
	}
	for _, service := range slices.Sorted(maps.Keys(found)) {
		report.Disagreements = append(report.Disagreements, *found[service])
	}
	f.each(min(maxExplained, len(report.Disagreements)), few, func(i int) { f.explain(ctx, targets, reference, &report.Disagreements[i]) })
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

// reading is what some nodes know, by Service: its digest, "" for one that a node does not know. nil stands for a node that did not answer.
// Only the reference's digests are kept whole.
type reading struct {
	reference map[string]string
	// others are the Services that each node knows differently, the first ones by name, and differ is how many there are.
	others []map[string]string
	differ []int
}

// read asks the reference and some other nodes for the digests of all Services.
func (f *Fleet) read(ctx context.Context, targets []target, reference int, others []int) reading {
	r := reading{f.digests(ctx, targets[reference]), make([]map[string]string, len(others)), make([]int, len(others))}
	if r.reference == nil {
		return r
	}
	f.each(len(others), few, func(i int) {
		if digests := f.digests(ctx, targets[others[i]]); digests != nil {
			r.others[i], r.differ[i] = different(r.reference, digests)
		}
	})
	return r
}

// digests asks a node for the digests of all Services; nil if it does not answer.
func (f *Fleet) digests(ctx context.Context, of target) map[string]string {
	c, err := f.connect(of)
	if err != nil {
		return nil
	}
	defer c.pod.Close()
	digests, err := c.AtMost(longAnswer).Digests(ctx, true)
	if err != nil {
		return nil
	}
	if digests.Services == nil {
		return map[string]string{}
	}
	return digests.Services
}

// different returns the first maxServices by name of the Services that another node knows differently from the reference, and how many there are.
func different(reference, other map[string]string) (first map[string]string, all int) {
	names := maps.Clone(other)
	maps.Copy(names, reference)
	maps.DeleteFunc(names, func(name, _ string) bool { return reference[name] == other[name] })
	first = map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(names))[:min(len(names), maxServices)] {
		first[name] = other[name]
	}
	return first, len(names)
}

// lasting returns the Services that a node knows differently in two readings, if neither it nor the reference changed them from one to the
// other. It is not ok if one of the two did not answer.
func lasting(first, second reading, node int) (services []string, ok bool) {
	before, after := first.others[node], second.others[node]
	for name, digest := range before {
		if again, differs := after[name]; differs && again == digest && first.reference[name] == second.reference[name] {
			services = append(services, name)
		}
	}
	return services, before != nil && after != nil
}

// explain adds how the first node differs from the reference.
func (f *Fleet) explain(ctx context.Context, targets []target, reference int, d *Disagreement) {
	at, _ := slices.BinarySearchFunc(targets, d.Nodes[0], func(t target, name string) int { return strings.Compare(t.node, name) })
	name, _ := cluster.ParseServiceName(d.Service)
	var both [2]*v1alpha1.Service
	var failing [2][]string
	for i, of := range []int{reference, at} {
		c, err := f.connect(targets[of])
		if err != nil {
			return
		}
		both[i], err = service(ctx, c.AtMost(longAnswer), name)
		if info, err := c.Info(ctx); err == nil {
			failing[i] = notProgrammed(info)
		}
		c.pod.Close()
		if err != nil {
			d.Differences = []string{fmt.Sprintf("not known: %v", err)}
			return
		}
	}
	d.Differences = differences(both[0], both[1], shown)
	for i, node := range []string{d.Than, d.Nodes[0]} {
		for _, why := range failing[i] { // what nodes show may be in force in one family only
			d.Differences = append(d.Differences, fmt.Sprintf("may differ because an earlier version, or none, is in force on %s (%s)", node, why))
		}
	}
	if len(d.Differences) == 0 {
		d.Differences = []string{"differs in what is not shown"}
	}
	if more := len(d.Differences) - maxDifferences; more > 0 {
		d.Differences = append(d.Differences[:maxDifferences], fmt.Sprintf("%d more", more))
	}
}
