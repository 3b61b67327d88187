package plan

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math"
	"math/bits"
	"net/netip"
	"slices"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// Balancing selects which annotations about load balancing are honoured (cluster.AnnotationAlgorithm, cluster.AnnotationWeight).
type Balancing struct {
	// On honours them. Without it a connection goes to any endpoint of a pool, each with the same probability.
	On bool
	// Slots is the size of the table from which hashes pick an endpoint, usually TableSlots; 0 if the backend has no slots: then it can pick
	// neither by a hash nor by weights in turn.
	Slots int
}

// TableSlots is how many slots the tables of most Services have: enough that an endpoint's share can be kept within 1 % of all connections, and
// few enough for the kernel. It does not depend on the number of endpoints, because another size is another table: all clients would move.
const TableSlots = 8192

// slotsPerEndpoint is how many slots an endpoint has on average, at least: more than 819 endpoints have a larger table.
const slotsPerEndpoint = 10

// maxDraws is how many numbers the tables of a Service may take to fill, 5 to 15 ns each: one for each slot and endpoint.
const maxDraws = 40_000_000

// slots returns the size of the table for a number of endpoints; 0 if the backend has no slots.
func (b Balancing) slots(endpoints int) int {
	size := b.Slots
	for size > 0 && size < slotsPerEndpoint*endpoints {
		size *= 2
	}
	return size
}

// perEndpoint returns how many slots an endpoint of a Service has, about.
func (b Balancing) perEndpoint(s *cluster.Service) int {
	if s == nil || !b.On || !s.Algorithm.Hashes() && !weighted(s) {
		return 1
	}
	n := max(1, entries(s))
	return max(1, b.slots(n)/n)
}

// weighted reports whether the endpoints of a Service may have different weights.
func weighted(s *cluster.Service) bool {
	return slices.ContainsFunc(s.Slices, func(slice *cluster.EndpointSlice) bool {
		return slices.ContainsFunc(slice.Endpoints, func(e cluster.Endpoint) bool { return e.Weight != 0 })
	})
}

// entries returns how many endpoints the slices of a Service list.
func entries(s *cluster.Service) (n int) {
	for _, slice := range s.Slices {
		n += len(slice.Endpoints)
	}
	return n
}

// Spread is how connections are spread over a pool.
type Spread struct {
	By cluster.Algorithm
	// Weights are those of the pool's endpoints; nil if all are equal.
	Weights []int
	// Slots are the endpoints to pick from, each as often as its weight requires. A slot is picked at random, in turn, or by a hash of the
	// connection; only for a hash the order of slots matters.
	Slots []netip.AddrPort
}

// Slots returns the endpoints to pick from, each as often as its weight requires; none for a nil pool.
func (p *Pool) Slots() []netip.AddrPort {
	if p != nil && p.Spread != nil {
		return p.Spread.Slots
	}
	return p.endpoints()
}

// uneven reports whether the pool, which may be nil, has a spread.
func (p *Pool) uneven() bool { return p != nil && p.Spread != nil }

// By returns the algorithm by which a slot is picked.
func (p *Pool) By() cluster.Algorithm {
	if p.Spread == nil {
		return cluster.Random
	}
	return p.Spread.By
}

// Weight returns the weight of the i-th endpoint; 1 if all are equal.
func (p *Pool) Weight(i int) int {
	if p.Spread == nil || p.Spread.Weights == nil {
		return 1
	}
	return p.Spread.Weights[i]
}

// equal reports whether pools with the same endpoints have the same slots. Slots follow from the other fields.
func (s *Spread) equal(o *Spread) bool {
	if s == nil || o == nil {
		return s == o
	}
	return s.By == o.By && slices.Equal(s.Weights, o.Weights)
}

// unbalanced returns why the Service is not balanced as its annotations say; "" if it is, as far as is known before its pools are.
func (d *decision) unbalanced() string {
	s, b := d.service, d.opts.Balancing
	if !b.On {
		return ""
	}
	why := s.Ignored
	for _, slice := range s.Slices {
		if slice.Ignored != "" {
			why = cmp.Or(why, fmt.Sprintf("EndpointSlice %s/%s: %s", s.Name.Namespace, slice.Name, slice.Ignored))
		}
	}
	n := entries(s)
	d.fits = d.opts.Limits.Elements == 0 || len(s.Ports)*addresses(s)*b.slots(n) <= d.opts.Limits.Elements/2
	switch d.algorithm = s.Algorithm; {
	case d.algorithm.Hashes() && b.Slots == 0:
		why = fmt.Sprintf("this proxy mode cannot balance by %s, only at random", d.algorithm)
		d.algorithm = cluster.Random
	case d.algorithm.Hashes() && (!d.fits || len(s.Ports)*b.slots(n)*n > maxDraws):
		why = fmt.Sprintf("the Service has too many ports, addresses or endpoints to be balanced by %s; it is balanced at random", d.algorithm)
		d.algorithm = cluster.Random
	}
	return why
}

// Weighs reports whether weights are honoured.
func (p *Plan) Weighs() bool { return p.options != nil && p.options.Balancing.On }

// spread decides how connections are spread over a pool, whose weights are known.
func (d *decision) spread(p *Pool) {
	s := cmp.Or(p.Spread, &Spread{})
	p.Spread = nil
	s.By = d.algorithm
	switch weighted := s.Weights != nil; {
	case weighted && !d.fits:
		s.Weights, s.By = nil, cluster.Random
		d.rare.unbalanced = "the Service has too many ports and addresses for weights; all endpoints get the same number of connections"
	case weighted && s.By == cluster.RoundRobin && d.opts.Balancing.Slots == 0:
		s.By = cluster.Random
		d.rare.unbalanced = "this proxy mode cannot balance by round-robin with different weights, only at random"
	}
	if len(p.Endpoints) < 2 || s.Weights == nil && s.By == cluster.Random {
		return
	}
	if known := d.before.spreadOf(p, s); known != nil {
		p.Spread = known
		return
	}
	switch p.Spread = s; {
	case s.By.Hashes():
		s.Slots = table(p, d.opts.Balancing.slots(len(p.Endpoints)))
	case s.Weights != nil:
		s.Slots = proportion(p, max(TableSlots, slotsPerEndpoint*len(p.Endpoints)))
	default:
		s.Slots = p.Endpoints
	}
}

// spreadOf returns the spread over an equal pool; nil if the Service, which may be nil, has none.
func (s *Service) spreadOf(p *Pool, spread *Spread) *Spread {
	for _, r := range s.routes() {
		for _, pool := range []*Pool{r.Pool, r.ShortCut} {
			if pool != nil && pool.Spread.equal(spread) && slices.Equal(pool.Endpoints, p.Endpoints) {
				return pool.Spread
			}
		}
	}
	return nil
}

// weightsOf returns the weights of the candidates that pass; nil if all are equal.
func weightsOf(all []candidate, passes test) (weights []int) {
	for i := range all {
		if passes(&all[i]) {
			weights = append(weights, all[i].weight)
		}
	}
	if !slices.ContainsFunc(weights, func(w int) bool { return w != weights[0] }) {
		return nil
	}
	return weights
}

// proportion returns each endpoint of a pool as often as its weight divided by what the weights have in common. If these are more than the limit,
// they are as many, about, and each endpoint is at least one of them.
func proportion(p *Pool, limit int) (slots []netip.AddrPort) {
	sum, divisor := 0, 0
	for i := range p.Endpoints {
		sum += p.Weight(i)
		for rest := p.Weight(i); rest != 0; {
			divisor, rest = rest, divisor%rest
		}
	}
	for i, endpoint := range p.Endpoints {
		times := p.Weight(i) / divisor
		if sum/divisor > limit {
			times = max(1, (p.Weight(i)*limit+sum/2)/sum)
		}
		slots = append(slots, slices.Repeat([]netip.AddrPort{endpoint}, times)...)
	}
	return slots
}

// The share of the slots that an endpoint may have above that of its weight: relative to it, and of all slots.
const (
	tolerance    = 0.1
	maxTolerance = 0.0025
)

// table returns the slots from which hashes pick an endpoint, the same on every node. Each slot draws a number for each endpoint, and gets the one
// with the highest (weighted rendezvous hashing, Thaler and Ravishankar 1998), as long as that is among the best of its endpoint, which may have
// only so many slots. So almost only the slots of an endpoint that leaves move. Maglev's permutations (Eisenbud et al. 2016) keep shares equal, but
// move several times as many (docs/decisions/0036).
func table(p *Pool, size int) []netip.AddrPort {
	d := newDraw(p, size)
	slots, of := make([]drawn, size), make([][]int, len(p.Endpoints))
	give := func(slot int) {
		slots[slot] = d.next(slot, slots[slot])
		of[slots[slot].endpoint] = append(of[slots[slot].endpoint], slot)
	}
	for slot := range slots {
		slots[slot].number = math.Inf(1)
		give(slot)
	}
	for full := true; full; {
		full = false
		for i, most := range d.most {
			if len(of[i]) <= most {
				continue
			}
			full = true
			slices.SortFunc(of[i], func(a, b int) int { return cmp.Compare(slots[b].number, slots[a].number) })
			rejected := slices.Clone(of[i][most:])
			of[i] = of[i][:most]
			for _, slot := range rejected {
				give(slot)
			}
		}
	}
	filled := make([]netip.AddrPort, size)
	for slot := range filled {
		filled[slot] = p.Endpoints[slots[slot].endpoint]
	}
	return filled
}

// draw draws numbers of the endpoints of a pool.
type draw struct {
	*Pool
	seeds []uint64
	// most is how many slots each endpoint may have.
	most []int
}

// drawn is an endpoint, by its index, with the number that a slot has drawn for it.
type drawn struct {
	endpoint int
	number   float64
}

func newDraw(p *Pool, size int) *draw {
	d, sum := &draw{Pool: p}, 0
	for i, endpoint := range p.Endpoints {
		sum += p.Weight(i)
		d.seeds = append(d.seeds, identity(endpoint))
	}
	for i := range p.Endpoints {
		share := float64(p.Weight(i)) / float64(sum)
		d.most = append(d.most, int(math.Ceil(float64(size)*(share+min(maxTolerance, tolerance*share)))))
	}
	return d
}

// next returns the endpoint with the highest number of a slot, of those that are lower than the last one's.
func (d *draw) next(slot int, last drawn) drawn {
	next, salt, weights := drawn{number: -1}, mixed(uint64(slot)), d.Spread.Weights
	for i, seed := range d.seeds {
		number := float64(mixed(seed^salt)>>11) + 0.5 // of 53 bits, which a float64 holds
		if weights != nil {
			number = -float64(weights[i]) / math.Log(number/(1<<53))
		}
		if number < last.number && number > next.number {
			next = drawn{i, number}
		}
	}
	return next
}

// identity returns a number for an endpoint, the same in every process.
func identity(endpoint netip.AddrPort) uint64 {
	addr, h := endpoint.Addr().As16(), fnv.New64a()
	_, _ = h.Write(binary.BigEndian.AppendUint16(addr[:], endpoint.Port())) // never fails
	return mixed(h.Sum64())
}

// mixed returns a number of which each bit depends on all bits (SplitMix64, Steele et al. 2014).
func mixed(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Picks returns the endpoint of a pool that a hash of 32 bits picks: the slots divide the range of hashes equally, in their order.
func (p *Pool) Picks(hash uint32) netip.AddrPort {
	slot, _ := bits.Mul64(uint64(hash)<<32, uint64(len(p.Slots())))
	return p.Slots()[slot]
}
