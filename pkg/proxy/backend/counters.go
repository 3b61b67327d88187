package backend

import "github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"

// Counting is what rules count. Greater values count less.
type Counting int

const (
	// CountEndpoints counts the connections of each frontend and each of its endpoints.
	CountEndpoints Counting = iota
	// CountServices counts the connections of each frontend.
	CountServices
	// CountNothing counts no connections.
	CountNothing
)

// String returns the value of the flag --connection-counters.
func (c Counting) String() string {
	return [...]string{CountEndpoints: "endpoint", CountServices: "service", CountNothing: "none"}[c]
}

// Counted returns what rules count in all of the families.
func Counted(c ConnectionCounter, families []cluster.Family) (least Counting) {
	for _, family := range families {
		least = max(least, c.Counts(family))
	}
	return least
}

// CounterLimits limits the memory of counters: each counter takes memory for every processor that the machine may have
// (docs/decisions/0014). The zero value lets everything count.
type CounterLimits struct {
	// Counting is the maximum of what is counted.
	Counting Counting
	// Most is the largest number of counters of a family; less is counted if they would be more. 0 is no limit.
	Most int
}

// Allow returns what may be counted if frontends need as many counters as there are services, and endpoints others.
func (l CounterLimits) Allow(services, endpoints int) Counting {
	switch {
	case l.Most == 0, l.Counting == CountNothing, l.Counting == CountEndpoints && services+endpoints <= l.Most:
		return l.Counting
	case services <= l.Most:
		return CountServices
	default:
		return CountNothing
	}
}
