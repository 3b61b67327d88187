package fleet

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/status/v1alpha1"
	"github.com/seed-11a05479/kube-proxy/pkg/terminal"
)

// Read reads a report that was written as JSON or YAML.
func Read(text []byte) (*Report, error) {
	report := &Report{}
	if err := yaml.Unmarshal(text, report); err != nil {
		return nil, err
	}
	if report.TypeMeta != v1alpha1.Meta(v1alpha1.KindFleet) || report.Time.IsZero() {
		return nil, fmt.Errorf("it is no report of \"kube-proxy fleet -o json\": kind is %q, apiVersion %q", report.Kind, report.APIVersion)
	}
	if slices.Contains(report.Nodes, nil) {
		return nil, errors.New("it is no report of \"kube-proxy fleet -o json\": a node is null")
	}
	return report, nil
}

// CompareWith adds the nodes that are worse than in an earlier report: those that do not serve any more, have another fault or more of the
// same, or disagree with other nodes about another Service. Which program runs is no fault, and what was broken before cannot be worse.
func (r *Report) CompareWith(before *Report) {
	r.Before, r.Worse = &before.Time, nil
	old := map[string]*Node{}
	for _, n := range before.Nodes {
		old[n.Name] = n
	}
	disputed, disputes := before.disputes(), r.disputes()
	for _, n := range r.Nodes {
		reasons := n.worseThan(old[n.Name])
		var services []string
		for service := range disputes[n.Name] {
			if !disputed[n.Name][service] {
				services = append(services, service)
			}
		}
		if len(services) > 0 {
			slices.Sort(services)
			reasons = append(reasons, fmt.Sprintf("it disagrees with other nodes about %s: %s", terminal.Count(len(services), "Service"),
				strings.Join(services[:min(len(services), maxDifferences)], ", ")))
		}
		if len(reasons) > 0 {
			r.Worse = append(r.Worse, Fault{n.Name, reasons})
		}
		delete(old, n.Name)
	}
	for _, n := range before.Nodes {
		if old[n.Name] != nil && r.someUnknown {
			r.Worse = append(r.Worse, Fault{n.Name, []string{"no pod of a proxy is there any more"}})
		}
	}
}

// disputes returns the Services about which each node differs from the one that it is compared with.
func (r *Report) disputes() map[string]map[string]bool {
	all := map[string]map[string]bool{}
	for _, d := range r.Disagreements {
		for _, node := range d.Nodes {
			if all[node] == nil {
				all[node] = map[string]bool{}
			}
			all[node][d.Service] = true
		}
	}
	return all
}

// works reports whether a proxy answers that serves what it should, whatever program it is.
func (n *Node) works() bool { return n.State == Serving || n.State == Foreign }

// worseThan returns what is wrong now, and was not before. A node without a past has no fault in it.
func (n *Node) worseThan(before *Node) (reasons []string) {
	var had map[string]int
	switch {
	case before == nil:
		before = &Node{State: Serving}
	case !before.works():
		return nil
	default:
		had = before.faults()
	}
	if !n.works() {
		return []string{n.text()}
	}
	has := n.faults()
	for _, message := range n.Messages {
		if kind := kindOf(message); has[kind] > had[kind] {
			reasons = append(reasons, message)
		}
	}
	if before.Health == healthy && n.Health == "" {
		reasons = append(reasons, "/healthz does not answer any more")
	}
	return reasons
}

// faults counts what is wrong with a node that works, by kind; of Services, how many have a problem.
func (n *Node) faults() map[string]int {
	all := map[string]int{}
	for _, message := range n.Messages {
		if !strings.HasPrefix(message, isForeign) && message != isOlder {
			all[kindOf(message)]++
		}
	}
	maps.Copy(all, n.Observed)
	return all
}

// kindOf returns the part of a message that does not change while a fault lasts.
func kindOf(message string) string {
	kind, _, _ := strings.Cut(message, ":")
	return kind
}
