//go:build linux

package trace

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/internal/netlink"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
)

// Describe is part of [Tracer].
func (t *kernelTracer) Describe(e Event) (d Description, _ error) {
	family := nf.ParseFamily(e.Family)
	chain, err := t.conn.Chain(family, e.Table, e.Chain)
	if chain.Type != "" {
		d.Type, d.Hook, d.Priority = chain.Type, nf.HookName(family, chain.Hook), chain.Priority
	}
	if err == nil && e.Kind == Rule {
		err = t.conn.Rule(family, e.Table, e.Chain, e.Handle, d.decode)
	}
	if err != nil && !errors.Is(err, unix.ENOENT) { // the chain or the rule is gone
		return Description{}, fmt.Errorf("read the rule of an event (table %s %s, chain %s): %w", e.Family, e.Table, e.Chain, err)
	}
	return d, nil
}

func (d *Description) decode(r nf.Rule) {
	d.Comment = nf.CommentOf(r.UserData())
	for e := r.Expressions(); e.Next(); {
		name, attrs := nf.ReadExpr(e.Data)
		switch string(name) {
		case "reject":
			d.Rejects = true
		case "target":
			d.Rejects = d.Rejects || netlink.String(attrs.Find(nf.AttrExtensionName)) == "REJECT"
		case "match":
			if netlink.String(attrs.Find(nf.AttrExtensionName)) == "comment" {
				d.Comment = unix.ByteSliceToString(attrs.Find(nf.AttrExtensionInfo))
			}
		}
	}
}
