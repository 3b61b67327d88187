package nft

import (
	"fmt"
	"net/netip"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
)

// SourceIn matches packets from a prefix of the table's family: `ip saddr 10.0.0.0/8`; with Not all others.
type SourceIn struct {
	Prefix netip.Prefix
	Not    bool
}

func (s SourceIn) text(family nf.Family) string {
	return fmt.Sprintf("%s saddr%s %s", family, operator(s.Not), s.Prefix.Masked())
}

func (s SourceIn) appendTo(b []byte, _ nf.Family) []byte {
	return nf.AppendPrefix(b, nf.Source, s.Prefix, s.Not)
}

// InputInterface matches packets that arrived on the interface of that name, or if the name ends in *, on any whose name
// begins with the rest: `iifname "cbr0"`; with Not all others.
type InputInterface struct {
	Name string
	Not  bool
}

func (i InputInterface) text(nf.Family) string {
	return fmt.Sprintf("iifname%s %q", operator(i.Not), i.Name)
}

func (i InputInterface) appendTo(b []byte, _ nf.Family) []byte {
	value, wild := strings.CutSuffix(i.Name, "*")
	b = nf.AppendMeta(b, unix.NFT_REG_1, unix.NFT_META_IIFNAME)
	if !wild { // with the padding, so that no longer name is equal
		value += strings.Repeat("\x00", max(0, unix.IFNAMSIZ-len(value)))
	}
	return nf.AppendCompare(b, i.Not, []byte(value))
}

// SourceIsLocal matches packets whose source is an address of this machine: `fib saddr type local`.
type SourceIsLocal struct{}

func (SourceIsLocal) text(nf.Family) string { return "fib saddr type local" }

func (SourceIsLocal) appendTo(b []byte, _ nf.Family) []byte {
	return nf.AppendIsLocal(b, nf.Source)
}

func operator(not bool) string {
	if not {
		return " !="
	}
	return ""
}
