package nftables

import (
	"errors"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft"
)

// maxClient is more than the bytes of the operations that delete a client.
const maxClient = 512

// forgetAttempts is how often an affinity map is searched in one sync.
const forgetAttempts = 4

// forget deletes the clients whose endpoint has left their pool from an affinity map.
//
// The map is searched until nothing is found, because the kernel's answer lacks elements while it resizes the map.
func (o *output) forget(clients *set, stays func(*element) bool) error {
	for attempt := 1; ; attempt++ {
		found, err := o.forgetOnce(clients, stays)
		// A client timed out after it was read, and a packet added it again; or the map is full.
		passing := errors.Is(err, unix.EEXIST) || errors.Is(err, unix.EBUSY) || errors.Is(err, unix.ENFILE)
		switch {
		case err != nil && (!passing || attempt == forgetAttempts):
			return err
		case err == nil && (found == 0 || attempt == forgetAttempts):
			return nil
		}
	}
}

// forgetOnce searches once, and returns the number of clients that it deleted.
func (o *output) forgetOnce(clients *set, stays func(*element) bool) (found int, err error) {
	o.batch.Reset()
	var gone []nft.Element
	var in space
	for raw, err := range o.table.Elements(o.ctx, clients.name) {
		if err != nil {
			return 0, err
		}
		e, err := clients.decode(&raw, &in)
		if err != nil {
			return 0, err
		}
		if !stays(e) {
			gone = append(gone, raw)
		}
	}
	for some := range slices.Chunk(gone, max(1, min(maxTransaction/2, o.batch.Room()/maxClient))) {
		for i := range some { // it may have timed out since
			o.batch.Ensure(clients.name, &some[i])
		}
		for i := range some {
			o.batch.Delete(clients.name, some[i].Key)
		}
		if err := o.commit(); err != nil {
			return 0, err
		}
	}
	o.elements += len(gone)
	return len(gone), nil
}
