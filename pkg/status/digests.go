package status

import (
	"fmt"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/status/v1alpha1"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// Digests returns what is known of all Services in short, and with services also of each. That of a Service which is not in force in a family,
// or as it was earlier, is one that no other node has.
func (s *State) Digests(services bool) *v1alpha1.Digests {
	out := &v1alpha1.Digests{TypeMeta: v1alpha1.Meta(v1alpha1.KindDigests)}
	if services {
		out.Services = map[string]string{}
	}
	var all uint64 // a sum: it does not depend on an order
	for service := range s.Snapshot.Services.Values() {
		digest := service.Digest()
		if !s.everywhere(service) {
			digest = ^digest
		}
		all += digest
		if services {
			out.Services[service.Name.String()] = hex(digest)
		}
	}
	out.All = hex(all)
	return out
}

// everywhere reports whether all families with rules in force have a Service as it is.
func (s *State) everywhere(of *cluster.Service) bool {
	for _, p := range s.InForce {
		if p.Snapshot() == s.Snapshot {
			continue
		}
		if before, is := p.Snapshot().Services.Get(of.Name); !is || before.Digest() != of.Digest() {
			return false
		}
	}
	return true
}

func hex(digest uint64) string { return fmt.Sprintf("%016x", digest) }
