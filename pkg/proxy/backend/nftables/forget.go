package nftables

import (
	"errors"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft"
)

// forgetAttempts is how often an affinity map is searched in one sync.
const forgetAttempts = 4

// forget makes clients forget the endpoints that left their pools. It comes last: from then on no packet
// remembers such an endpoint again. Other endpoints' clients stay where they are.
//
// A map is searched until nothing is found, since the kernel's answer lacks elements while it resizes the map.
func (a *applier) forget(p *patch) error {
	for _, t := range p.forget {
		for attempt := 1; ; attempt++ {
			found, err := a.forgetIn(t, p.after)
			// A client's entry timed out after it was read, and a packet wrote another; or the map is full.
			passing := errors.Is(err, unix.EEXIST) || errors.Is(err, unix.EBUSY) || errors.Is(err, unix.ENFILE)
			if err != nil && (!passing || attempt == forgetAttempts) {
				return err
			}
			if err == nil && (found == 0 || attempt == forgetAttempts) {
				break
			}
		}
	}
	return nil
}

// forgetIn searches one affinity map, and tells how many clients it made forget.
func (a *applier) forgetIn(t timeout, after *ruleset) (found int, err error) {
	a.batch.Reset()
	d := decoder{after.family}
	var gone []nft.Element
	for e, err := range a.table.Elements(a.ctx, t.name()) {
		if err != nil {
			return 0, err
		}
		pool, err := d.client(e.Key)
		if err != nil {
			return 0, err
		}
		endpoint, err := d.endpoint(e.Value)
		if err != nil {
			return 0, err
		}
		if !after.remembers(t, pool, endpoint) {
			gone = append(gone, e)
		}
	}
	for some := range slices.Chunk(gone, maxTransaction/2) {
		for i := range some { // which may have timed out since
			a.batch.Ensure(t.name(), &some[i])
		}
		for i := range some {
			a.batch.Delete(t.name(), some[i].Key)
		}
		if err := a.commit(); err != nil {
			return 0, err
		}
	}
	a.elements += len(gone)
	return len(gone), nil
}
