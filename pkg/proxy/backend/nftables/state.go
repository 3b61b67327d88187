package nftables

import (
	"fmt"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// state is what one family's table holds in the kernel, as a value that never changes.
type state struct {
	// holds is what the table holds of what is known to the schema, with each endpoint in its slot. Its skeleton is nil
	// unless it is, to the letter, what this program or an equal one before it wrote.
	holds *desired
	// fingerprint is that of the kernel's table, elements omitted, when it was last known to be right.
	fingerprint string
	// objects are the digests of single objects that came with it.
	objects map[string]string
	// strays are elements that no frontend explains, leftovers chains and sets.
	strays    []stray
	leftovers leftovers
}

// stray is an element that does not decode.
type stray struct {
	set string
	key string
}

// leftovers are what an earlier version, or another program in its place, left in the table.
type leftovers struct {
	chains, sets, maps []string
}

func (l leftovers) none() bool { return len(l.chains)+len(l.sets)+len(l.maps) == 0 }

// family is one address family's table and what is known of it.
type family struct {
	schema *schema
	table  nft.Table
	batch  *nft.Batch
	// have is what the table holds; nil if it has to be read.
	have *state
}

func newFamily(table nft.Table) *family {
	of := cluster.IPv4
	if table.Family() == dialectOf(cluster.IPv6).nftFamily {
		of = cluster.IPv6
	}
	return &family{schema: newSchema(of), table: table, batch: table.NewBatch()}
}

// wrap adds the family to an error.
func wrap(family fmt.Stringer, err error) error {
	if err != nil {
		return fmt.Errorf("%s: %w", family, err)
	}
	return nil
}
