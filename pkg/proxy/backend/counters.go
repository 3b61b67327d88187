package backend

import "github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"

// Counting is what rules count. Greater values count less.
type Counting int

const (
	// CountEndpoints counts the connections of each frontend and each of its endpoints.
	CountEndpoints Counting = iota
	// CountServices counts those of each frontend.
	CountServices
	// CountNothing counts none.
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

// CounterLimits limits the memory of counters: that of a counter has a part for every processor that the machine may have
// (docs/decisions/0014). The zero value lets everything count.
type CounterLimits struct {
	// Counting is the most that is counted.
	Counting Counting
	// Limit is the most memory of all counters of a family in bytes; less is counted if they would need more. 0 is no
	// limit.
	Limit int
	// Size is the memory of one counter in bytes.
	Size int
}

// Allow returns what may be counted.
func (l CounterLimits) Allow(needed Counters) Counting {
	level := l.Counting
	for l.Limit > 0 && level < CountNothing && needed.At(level)*l.Size > l.Limit {
		level++
	}
	return level
}

// Counters are numbers of counters: of frontends, and of endpoints.
type Counters struct{ Services, Endpoints int }

// At returns the number of counters at a level.
func (c Counters) At(level Counting) int {
	switch level {
	case CountEndpoints:
		return c.Services + c.Endpoints
	case CountServices:
		return c.Services
	default:
		return 0
	}
}
