package status

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/status/v1alpha1"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// maxSimilar is the number of similar names in a message.
const maxSimilar = 3

// Missing returns the text of an error about a Service that is not served, with similar names.
func (s *State) Missing(name cluster.ServiceName) string {
	var text strings.Builder
	fmt.Fprintf(&text, "Service %s is not served: %s", name, WhyNotServed)
	if s.Unowned != nil {
		for _, unowned := range s.Unowned() {
			if unowned.Service == name {
				fmt.Fprintf(&text, "; EndpointSlice %s/%s belongs to it", name.Namespace, unowned.Slices[0].Name)
			}
		}
	}
	for _, problem := range s.Info.Problems {
		if problem.Reason == v1alpha1.ReasonInvalidManifest {
			fmt.Fprintf(&text, "; %s: %s", problem.Reason, problem.Message)
		}
	}
	if s.Info.Pending != nil {
		fmt.Fprintf(&text, "; changes that arrived in the last %s are not programmed yet", Ago(s.Now, s.Info.Pending.Add(-time.Second))) // rounded up
	}
	if err := Failing(&s.Info, ""); err != nil {
		fmt.Fprintf(&text, "; %s", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	var similar, elsewhere []string
	for other := range s.Snapshot.Services.All() {
		switch {
		case other.Namespace == name.Namespace && near(other.Name, name.Name):
			similar = append(similar, other.String())
		case other.Name == name.Name:
			elsewhere = append(elsewhere, other.String())
		}
	}
	if similar = append(similar, elsewhere...); len(similar) > 0 {
		fmt.Fprintf(&text, "; did you mean %s?", strings.Join(similar[:min(len(similar), maxSimilar)], " or "))
	}
	return text.String()
}

// Failing returns an error if the last sync failed in a family, or in any if family is empty: then the rules there are not those of what is shown.
func Failing(info *v1alpha1.Info, family string) error {
	var failed []error
	for _, f := range info.Sync.Failed() {
		if family == "" || family == f.Family {
			failed = append(failed, fmt.Errorf("%s; what was in force there before stays so, if anything was", f.Failure()))
		}
	}
	return errors.Join(failed...)
}

// near reports whether one name is probably a misspelling of the other: whether their edit distance, in which two swapped
// letters count once, is 1, or up to 2 for long names.
func near(a, b string) bool {
	limit := 1
	if min(len(a), len(b)) >= 8 {
		limit = 2
	}
	if a == b || max(len(a), len(b))-min(len(a), len(b)) > limit {
		return false
	}
	// d[i][j] is the distance of the first i letters of a and the first j of b.
	d := make([][]int, len(a)+1)
	for i := range d {
		d[i] = make([]int, len(b)+1)
		d[i][0] = i
	}
	for j := range d[0] {
		d[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			changed := 1
			if a[i-1] == b[j-1] {
				changed = 0
			}
			d[i][j] = min(d[i-1][j]+1, d[i][j-1]+1, d[i-1][j-1]+changed)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				d[i][j] = min(d[i][j], d[i-2][j-2]+1)
			}
		}
	}
	return d[len(a)][len(b)] <= limit
}
