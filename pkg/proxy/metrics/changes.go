package metrics

import (
	"iter"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// changeCount is the number of changes between two snapshots.
type changeCount struct {
	// services counts changed Services regardless of their endpoints, slices changed EndpointSlices.
	services, slices int
}

func countOf(changes iter.Seq2[cluster.ServiceName, cluster.Change[*cluster.Service]]) (n changeCount) {
	for _, change := range changes {
		if !change.Was || !change.Is || !change.Before.SameSpec(change.After) {
			n.services++
		}
		for range sliceChanges(change.Before, change.After) {
			n.slices++
		}
	}
	return n
}

// sliceChanges returns the slices that differ between two versions of a Service, as pairs of old and new. Either
// Service may be nil; old is nil for an added slice, and new for a deleted one.
func sliceChanges(before, after *cluster.Service) iter.Seq2[*cluster.EndpointSlice, *cluster.EndpointSlice] {
	olds, news := slicesOf(before), slicesOf(after)
	return func(yield func(old, now *cluster.EndpointSlice) bool) {
		for len(olds) > 0 || len(news) > 0 {
			var old, now *cluster.EndpointSlice
			if len(news) == 0 || len(olds) > 0 && olds[0].Name <= news[0].Name {
				old, olds = olds[0], olds[1:]
			}
			if len(news) > 0 && (old == nil || old.Name == news[0].Name) {
				now, news = news[0], news[1:]
			}
			if old != now && !yield(old, now) {
				return
			}
		}
	}
}

// slicesOf returns the slices of a Service, sorted by name; s may be nil.
func slicesOf(s *cluster.Service) []*cluster.EndpointSlice {
	if s == nil {
		return nil
	}
	return s.Slices
}
