package nftables

import (
	"errors"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft"
)

// forgetAttempts is how often an affinity map is searched in one sync when clients come in between.
const forgetAttempts = 4

// forget makes clients forget the endpoints that left their pools. It comes last: from then on no packet
// remembers such an endpoint again. Other endpoints' clients stay where they are.
func (a *applier) forget(p *patch) error {
	for _, t := range p.forget {
		for attempt := 1; ; attempt++ {
			err := a.forgetIn(t, p.after)
			if err == nil {
				break
			}
			// The client's entry timed out since it was read and a packet wrote another, or the map is full.
			passing := errors.Is(err, unix.EEXIST) || errors.Is(err, unix.EBUSY) || errors.Is(err, unix.ENFILE)
			if !passing || attempt == forgetAttempts {
				return err
			}
		}
	}
	return nil
}

// forgetIn searches one affinity map.
func (a *applier) forgetIn(t timeout, after *ruleset) error {
	a.batch.Reset()
	d := decoder{after.family}
	for e, err := range a.table.Elements(a.ctx, t.name()) {
		if err != nil {
			return err
		}
		pool, err := d.client(e.Key)
		if err != nil {
			return err
		}
		endpoint, err := d.endpoint(e.Value)
		if err != nil {
			return err
		}
		if after.remembers(t, pool, endpoint) {
			continue
		}
		a.batch.Discard(t.name(), &nft.Element{Key: slices.Clone(e.Key), Value: slices.Clone(e.Value)})
		a.elements++
		if a.batch.Len() >= maxTransaction {
			if err := a.commit(); err != nil {
				return err
			}
		}
	}
	return a.commit()
}
