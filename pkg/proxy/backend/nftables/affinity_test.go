package nftables

import (
	"context"
	"fmt"
	"net/netip"
	"testing"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// visit has clients come to every sticky pool, as packets would write it.
func (w *world) visit(b *Backend) {
	for _, f := range b.families {
		if f.have == nil {
			continue
		}
		for pool, m := range f.have.pools.All() {
			for range 3 {
				learn(f, m.seconds, pool, w.rnd.IntN(50), m.endpoints[w.rnd.IntN(len(m.endpoints))])
			}
		}
	}
}

// learn sends a client to an endpoint.
func learn(f *family, seconds timeout, pool poolID, client int, endpoint netip.AddrPort) {
	f.table.(*nft.Fake).Learn(seconds.name(), &nft.Element{Key: clientKey(f.is, pool, client), Value: appendEndpoint(nil, endpoint)})
}

func clientKey(family cluster.Family, pool poolID, client int) []byte {
	source := addrAt(192<<24|168<<16, client)
	if family == cluster.IPv6 {
		source = netip.MustParseAddr(fmt.Sprintf("2001:db8::%x", client))
	}
	return appendPool(append(appendAddr(nil, source), byte(cluster.TCP), 0, 0, 0), pool)
}

// clients lists an affinity map: to which endpoint each client goes.
func clients(t *testing.T, f *family, seconds timeout) map[string]netip.AddrPort {
	t.Helper()
	found := map[string]netip.AddrPort{}
	for e, err := range f.table.Elements(context.Background(), seconds.name()) {
		if err != nil {
			t.Fatal(err)
		}
		if found[string(e.Key)], err = (decoder{f.is}).endpoint(e.Value); err != nil {
			t.Fatal(err)
		}
	}
	return found
}

// fill writes a client, a thousand at a time.
func fill(a *applier, seconds timeout, key []byte, endpoint netip.AddrPort) {
	a.batch.Add(seconds.name(), &nft.Element{Key: key, Value: appendEndpoint(nil, endpoint)})
	if a.batch.Len() >= 1000 {
		_ = a.commit() // the last one tells
	}
}
