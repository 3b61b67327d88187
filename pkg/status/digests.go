package status

import (
	"fmt"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/status/v1alpha1"
)

// Digests returns what is known of all Services in short, and with services also of each.
func (s *State) Digests(services bool) *v1alpha1.Digests {
	out := &v1alpha1.Digests{TypeMeta: v1alpha1.Meta(v1alpha1.KindDigests)}
	if services {
		out.Services = map[string]string{}
	}
	var all uint64 // a sum: it does not depend on an order
	for service := range s.Snapshot.Services.Values() {
		digest := service.Digest()
		all += digest
		if services {
			out.Services[service.Name.String()] = hex(digest)
		}
	}
	out.All = hex(all)
	return out
}

func hex(digest uint64) string { return fmt.Sprintf("%016x", digest) }
