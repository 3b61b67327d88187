package nftables

import (
	"errors"
	"fmt"
	"sync/atomic"

	"sigs.k8s.io/knftables"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft"
	"github.com/seed-11a05479/kube-proxy/pkg/logonce"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// state is what one family's table holds in the kernel, as an immutable value.
type state struct {
	// holds is the content that the schema describes, with each endpoint in its slot. Its skeleton is nil unless this
	// program, or one with an equal skeleton, wrote it and it is unchanged.
	holds *desired
	// altered is the content that the table has because others have written it; nil if it has that of holds.
	altered *content
	// fingerprint is that of the kernel's table without elements, when it was last known to be right.
	fingerprint string
	// objects are the digests of single objects that belong to it.
	objects map[string]string
	// strays are elements of no frontend, leftovers are unknown chains and sets.
	strays    []stray
	leftovers leftovers
}

// content is what the table has.
func (s *state) content() *content {
	if s.altered != nil {
		return s.altered
	}
	return &s.holds.content
}

// stray is an element that cannot be decoded or belongs to no frontend.
type stray struct {
	set string
	key string
}

// leftovers are chains and sets of an earlier version, or of another program.
type leftovers struct {
	chains, sets, maps, flowtables []string
}

func (l leftovers) none() bool { return len(l.chains)+len(l.sets)+len(l.maps)+len(l.flowtables) == 0 }

// objects returns those that can be emptied, in an order in which they can be deleted when all are empty.
func (l leftovers) objects() (all []knftables.Object) {
	for _, name := range l.maps {
		all = append(all, &knftables.Map{Name: name})
	}
	for _, name := range l.sets {
		all = append(all, &knftables.Set{Name: name})
	}
	for _, name := range l.chains {
		all = append(all, &knftables.Chain{Name: name})
	}
	return all
}

// reading is what was read from the kernel's table (read.go).
type reading struct {
	collector
	// out is the state, whose content is not complete yet.
	out *state
}

// family is one address family's table with its state. It implements [keeper.Rules].
type family struct {
	opts   Options
	schema *schema
	table  nft.Table
	batch  *nf.Batch
	// audit is what another goroutine does, or has done; nil if nothing.
	audit *audit
	// have is what the table holds; nil if that is not known. found is what was read before the first Sync, nil otherwise.
	have  *state
	found *reading
	// clients counts remembered clients, for other goroutines.
	clients clientCounter
	// counts is schema.counting, for other goroutines.
	counts atomic.Int32
	// forgetting are affinity maps to search.
	forgetting forgetting
	// refusing is that the kernel refuses devices for the fast path.
	refusing logonce.Condition
}

// audit is a comparison of all elements, in a goroutine of its own.
type audit struct {
	// ended is set when the others are: the elements that seem to differ, some because a Sync wrote them meanwhile.
	ended  atomic.Bool
	differ []nf.Object
	err    error
}

func newFamily(opts Options, table nft.Table) *family {
	counting := opts.Counters.Counting
	of := cluster.IPv4
	if table.Family() == dialectOf(cluster.IPv6).number {
		of = cluster.IPv6
	}
	f := &family{opts: opts, schema: newSchema(of, counting, false), table: table, batch: table.NewBatch()}
	f.counts.Store(int32(counting))
	return f
}

// onTable calls a function with the table of a family, over a socket of its own.
func onTable(family cluster.Family, do func(nft.Table) error) error {
	table, err := nft.Open(dialectOf(family).number, TableName)
	if err != nil {
		return wrap(family, err)
	}
	return wrap(family, errors.Join(do(table), table.Close()))
}

// wrap adds the family to an error.
func wrap(family fmt.Stringer, err error) error {
	if err != nil {
		return fmt.Errorf("%s: %w", family, err)
	}
	return nil
}
