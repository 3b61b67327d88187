package status

import (
	"fmt"
	"hash/fnv"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/status/v1alpha1"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// Digests returns what is known of all Services in short, and with services also of each. That of a Service which some families do not have, or
// have as it was earlier, depends also on what they have: also of one that is deleted.
func (s *State) Digests(services bool) *v1alpha1.Digests {
	out := &v1alpha1.Digests{TypeMeta: v1alpha1.Meta(v1alpha1.KindDigests)}
	if services {
		out.Services = map[string]string{}
	}
	var all uint64 // a sum: it does not depend on an order
	add := func(name cluster.ServiceName, digest uint64) {
		all += digest
		if services {
			out.Services[name.String()] = hex(digest)
		}
	}
	otherwise := s.otherwise()
	for service := range s.Snapshot.Services.Values() {
		add(service.Name, service.Digest()+otherwise[service.Name])
		delete(otherwise, service.Name)
	}
	for name, digest := range otherwise { // deleted
		add(name, digest)
	}
	out.All = hex(all)
	return out
}

// otherwise returns a digest of what families have in force, for each Service that one of them does not have as it is.
func (s *State) otherwise() map[cluster.ServiceName]uint64 {
	digests := map[cluster.ServiceName]uint64{}
	if len(s.InForce) == 0 {
		return digests // no proxy runs, or none of its Services is shown
	}
	for _, family := range s.Rules.Families {
		var there cluster.Map[cluster.ServiceName, *cluster.Service] // of a family in which no sync has succeeded
		if p, ok := s.InForce[family]; ok {
			there = p.Snapshot().Services
		}
		for name, change := range cluster.Changes(there, s.Snapshot.Services) {
			var before uint64
			if change.Was {
				before = change.Before.Digest()
			}
			if change.Was && change.Is && before == change.After.Digest() {
				continue
			}
			sum := fnv.New64a() // with the name: the same in two Services must not look alike in the sum of all
			fmt.Fprintf(sum, "%v %v %t %x", name, family, change.Was, before)
			digests[name] += sum.Sum64()
		}
	}
	return digests
}

func hex(digest uint64) string { return fmt.Sprintf("%016x", digest) }
