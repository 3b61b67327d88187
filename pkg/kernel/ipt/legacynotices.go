package ipt

import (
	"errors"
	"fmt"
	"hash/maphash"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
)

// LegacyNotices find out that somebody wrote tables of the legacy variant, where the kernel reports nothing: a program took the
// xtables lock, or the number and size of a table's entries differ, or where its built-in chains begin. They miss a program that
// writes as many rules of the same size without the lock. One goroutine uses them; the methods are those of [nf.Watch].
type LegacyNotices struct {
	lock     *lockWatch
	requests []*legacyRequests
	tables   []string
	// sizes are the tables' digests at the last look, by family. missed means that what was noticed has yet to be returned.
	sizes  []map[string]uint64
	missed bool
}

// OpenLegacyNotices opens the notices of tables in the network namespace of the calling thread. It requires CAP_NET_ADMIN and
// CAP_NET_RAW.
func OpenLegacyNotices(families []Family, tables ...string) (*LegacyNotices, error) {
	lock, err := openLockWatch()
	if err != nil {
		return nil, err
	}
	n := &LegacyNotices{lock: lock, tables: tables}
	for _, family := range families {
		r, err := openLegacyRequests(family)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("iptables %s: %w", family, err), n.Close())
		}
		n.requests, n.sizes = append(n.requests, r), append(n.sizes, map[string]uint64{})
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

// look reports whether anything may have been written since the last time.
func (n *LegacyNotices) look() (wrote bool) {
	wrote, err := n.lock.closed()
	wrote = wrote || err != nil
	for i, r := range n.requests {
		for _, table := range n.tables {
			info, _ := r.info(table) // without the table always the same
			now := maphash.Bytes(digestSeed, info.raw[:])
			wrote = wrote || n.sizes[i][table] != now
			n.sizes[i][table] = now
		}
	}
	return wrote
}

// Close closes what is held open.
func (n *LegacyNotices) Close() error {
	failed := []error{n.lock.close()}
	for _, r := range n.requests {
		failed = append(failed, r.close())
	}
	return errors.Join(failed...)
}
