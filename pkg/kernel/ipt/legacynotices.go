package ipt

import (
	"errors"
	"fmt"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
)

// LegacyNotices find out that somebody wrote tables of the legacy variant, where the kernel reports nothing: a program took the
// xtables lock, or the number and size of a table's entries differ, or where its built-in chains begin. They miss a program that
// writes as many rules of the same size without the lock. One goroutine uses them; the methods are those of [nf.Watch].
type LegacyNotices struct {
	look func() (wrote bool)
	end  func() error // called by Close
	// missed means that what was noticed has yet to be returned.
	missed bool
}

// NewLegacyNotices returns notices of what look reports: whether anything may have been written since its last call. It reports what was
// there before its first call, too.
func NewLegacyNotices(look func() (wrote bool), end func() error) *LegacyNotices {
	return &LegacyNotices{look: look, end: end}
}

// OpenLegacyNotices opens the notices of tables in the network namespace of the calling thread. It requires CAP_NET_ADMIN and
// CAP_NET_RAW.
func OpenLegacyNotices(families []Family, tables ...string) (*LegacyNotices, error) {
	lock, err := openLockWatch()
	if err != nil {
		return nil, err
	}
	requests, last := make([]*legacyRequests, 0, len(families)), map[string]tableInfo{}
	n := NewLegacyNotices(func() bool {
		wrote, err := lock.closed()
		wrote = wrote || err != nil
		for i, r := range requests {
			for _, table := range tables {
				now, _ := r.info(table) // without the table always the same
				of := string(families[i]) + table
				wrote = wrote || last[of] != now
				last[of] = now
			}
		}
		return wrote
	}, func() error {
		failed := []error{lock.close()}
		for _, r := range requests {
			failed = append(failed, r.close())
		}
		return errors.Join(failed...)
	})
	for _, family := range families {
		r, err := openLegacyRequests(family)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("iptables %s: %w", family, err), n.Close())
		}
		requests = append(requests, r)
	}
	return n, nil
}

// Modified returns nil: Take has to be called periodically.
func (n *LegacyNotices) Modified() <-chan struct{} { return nil }

// Report does nothing.
func (n *LegacyNotices) Report() {}

// Take reports whether nobody wrote since the last call.
func (n *LegacyNotices) Take() (_ []nf.Write, all bool) {
	n.missed = n.look() || n.missed
	all, n.missed = !n.missed, false
	return nil, all
}

// Pause makes the following writes unknown until Resume.
func (n *LegacyNotices) Pause() error {
	n.missed = n.look() || n.missed
	return nil
}

// Resume ends a pause. It cannot know who wrote.
func (n *LegacyNotices) Resume(int) (alone bool) {
	n.look()
	return false
}

// Close closes what is held open.
func (n *LegacyNotices) Close() error { return n.end() }
