package nftables

import (
	"errors"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
)

const (
	// forgetPart is how many elements one part of forgetting reads or writes, unless it reads one full map. Changes of others wait
	// for it, some 30 ms.
	forgetPart = 4096
	// searchCost is how many elements could be read while the kernel finds a map.
	searchCost = 64
	// maxClient is more than the bytes of the operations that delete a client.
	maxClient = 512
	// maxSearches is how often a map is searched.
	maxSearches = 4
)

// forgetting is a queue of affinity maps that may hold clients whose endpoint left the pool. It is worked off in parts, so that
// no change waits until all maps are searched: there may be many, and external clients can fill them.
type forgetting []*search

// search is the work on one map. It is searched until nothing is found, because the kernel's answer lacks elements while it
// resizes the map.
type search struct {
	pool  poolID
	times int
	// gone are the clients to delete that were found.
	gone []nf.Element
}

// add adds maps, in front of those that wait: a small map is done in the Sync in which the endpoint leaves.
func (q *forgetting) add(pools []poolID) {
	waiting := slices.DeleteFunc(*q, func(s *search) bool { return slices.Contains(pools, s.pool) })
	*q = nil
	for _, pool := range pools {
		*q = append(*q, &search{pool: pool})
	}
	*q = append(*q, waiting...)
}

// part does a part of the work. A map that is not done goes to the end of the queue, so that a full one delays others once.
func (q *forgetting) part(o *output, s *schema, holds *content) error {
	for left := forgetPart; left > 0 && len(*q) > 0; {
		used, done, err := (*q)[0].part(o, s, holds, left)
		if err != nil {
			return err
		}
		if left -= used + searchCost; done {
			*q = (*q)[1:]
		}
	}
	if len(*q) > 1 && (*q)[0].times > 0 {
		*q = append((*q)[1:], (*q)[0])
	}
	return nil
}

// part reads the map, or deletes at most half as many clients as there are operations left.
func (s *search) part(o *output, schema *schema, holds *content, left int) (used int, done bool, _ error) {
	clients := schema.clients(s.pool)
	if len(s.gone) == 0 {
		used, err := s.read(o, clients, holds)
		if errors.Is(err, unix.ENOENT) { // its port has no affinity any more
			return used, true, nil
		}
		if err == nil {
			s.times++
		}
		return used, len(s.gone) == 0, err
	}
	n := min(len(s.gone), max(1, min(left/2, o.batch.Room()/maxClient)))
	err := s.remove(o, clients, holds, s.gone[:n])
	if errors.Is(err, unix.ENOENT) {
		return 2 * n, true, nil
	}
	// A client timed out after it was read, and a packet added it again; or the map is full.
	passing := errors.Is(err, unix.EEXIST) || errors.Is(err, unix.EBUSY) || errors.Is(err, unix.ENFILE)
	if s.gone = s.gone[n:]; passing {
		s.gone, err = nil, nil
	}
	return 2 * n, len(s.gone) == 0 && s.times >= maxSearches, err
}

// read searches the map, and returns the number of its clients.
func (s *search) read(o *output, clients *set, holds *content) (count int, _ error) {
	var in buffer
	for raw, err := range o.table.Elements(o.ctx, clients.name) {
		if err != nil {
			return count, err
		}
		count++
		if !s.keeps(&raw, clients, holds, &in) {
			s.gone = append(s.gone, raw)
		}
	}
	return count, nil
}

// remove deletes clients, except those whose endpoint has come back.
func (s *search) remove(o *output, clients *set, holds *content, gone []nf.Element) error {
	var in buffer
	o.batch.Reset()
	for i := range gone {
		if s.keeps(&gone[i], clients, holds, &in) {
			continue
		}
		if len(gone[i].Key) > 0 { // otherwise it is another program's, for all clients
			o.batch.Ensure(clients.name, &gone[i]) // it may have timed out since
		}
		o.batch.Delete(clients.name, gone[i].Key)
		o.elements++
	}
	return o.commit()
}

// keeps reports whether packets may have written a client, and its endpoint is still there.
func (s *search) keeps(client *nf.Element, clients *set, holds *content, in *buffer) bool {
	e, err := clients.decode(client, in)
	return err == nil && holds.remembers(s.pool, e.endpoint())
}
