package iptables

import (
	"context"
	"errors"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend/keeper"
)

// Backend is the iptables dataplane. It implements backend.Backend.
type Backend struct {
	*keeper.Keeper
	opts     Options
	families []*family
}

var _ backend.Backend = (*Backend)(nil)

// checkShare is the part of a core that reading rules again may use. A program that writes all the time in the legacy variant
// uses more itself, since each write also reads the table.
const checkShare = 0.2

// New returns a backend that writes the given tables, one for each family to be served. The kernel's settings at this
// time decide whether invalid packets are dropped. Close closes the notices and the tables.
func New(opts Options, settings Settings, notices keeper.Notices, doors ...ipt.Tables) *Backend {
	b := &Backend{opts: opts}
	var rules []keeper.Rules
	for _, door := range doors {
		f := newFamily(door, opts, settings)
		b.families, rules = append(b.families, f), append(rules, f)
	}
	b.Keeper = keeper.New(notices, checkShare, rules...)
	return b
}

// OpenNotices opens the notices of who writes the tables of a variant, in the network namespace of the calling thread.
func OpenNotices(variant ipt.Variant, families ...ipt.Family) (keeper.Notices, error) {
	if variant == ipt.Legacy {
		return ipt.OpenLegacyNotices(families, tables()...)
	}
	var watched []nf.TableName
	for _, family := range families {
		for _, table := range tables() {
			watched = append(watched, nf.TableName{Family: family.Number(), Name: table})
		}
	}
	return nf.OpenWatch(watched...)
}

// Cleanup removes our chains and the rules that lead to them, and those of another kube-proxy.
func (b *Backend) Cleanup(ctx context.Context) error {
	b.Forget()
	var failed []error
	for _, f := range b.families {
		failed = append(failed, cleanup(ctx, f.door, f.is, f.renderer.can))
	}
	return errors.Join(failed...)
}

// Close leaves the tables in place.
func (b *Backend) Close() error {
	failed := []error{b.Keeper.Close()}
	for _, f := range b.families {
		failed = append(failed, f.door.Close())
	}
	return errors.Join(failed...)
}
