//go:build linux

package trace

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/internal/netlink"
)

// Attributes of linux/netfilter/nf_tables_compat.h, which golang.org/x/sys/unix lacks: of a match and of a target of iptables.
const (
	compatName = 1 // NFTA_MATCH_NAME, NFTA_TARGET_NAME
	compatInfo = 3 // NFTA_MATCH_INFO, NFTA_TARGET_INFO
)

// Describe is part of [Tracer].
func (t *kernelTracer) Describe(e Event) (Description, error) {
	if t.closed {
		return Description{}, ErrClosed
	}
	key := ruleKey{e.Family, e.Table, e.Chain, e.Handle}
	if known, ok := t.described[key]; ok {
		return known, nil
	}
	var d Description
	if err := t.describe(e, &d); err != nil {
		return Description{}, fmt.Errorf("read the rule of an event (table %s %s, chain %s): %w", e.Family, e.Table, e.Chain, err)
	}
	t.described[key] = d
	return d, nil
}

func (t *kernelTracer) describe(e Event, d *Description) error {
	family := familyByName(e.Family)
	err := t.asked.Get(requestHeader(unix.NFT_MSG_GETCHAIN, family), func(b []byte) []byte {
		b = netlink.AppendString(b, unix.NFTA_CHAIN_TABLE, e.Table)
		return netlink.AppendString(b, unix.NFTA_CHAIN_NAME, e.Chain)
	}, func(m netlink.Message) error {
		d.decodeChain(m, family)
		return nil
	})
	if err != nil || e.Kind != Rule {
		return known(err)
	}
	return known(t.asked.Get(requestHeader(unix.NFT_MSG_GETRULE, family), func(b []byte) []byte {
		b = netlink.AppendString(b, unix.NFTA_RULE_TABLE, e.Table)
		b = netlink.AppendString(b, unix.NFTA_RULE_CHAIN, e.Chain)
		return netlink.AppendBytes(b, unix.NFTA_RULE_HANDLE, binary.BigEndian.AppendUint64(nil, e.Handle))
	}, func(m netlink.Message) error {
		d.decodeRule(m)
		return nil
	}))
}

// known forgets that a chain or rule is gone.
func known(err error) error {
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}

func (d *Description) decodeChain(m netlink.Message, family byte) {
	d.Type = m.AttrString(unix.NFTA_CHAIN_TYPE)
	h := netlink.ReadAttrs(m.Attr(unix.NFTA_CHAIN_HOOK))
	for h.Next() {
		switch h.Type {
		case unix.NFTA_HOOK_HOOKNUM:
			d.Hook = hookName(h.Uint32(), family)
		case unix.NFTA_HOOK_PRIORITY:
			d.Priority = int32(h.Uint32())
		}
	}
}

func (d *Description) decodeRule(m netlink.Message) {
	d.Comment = comment(m.Attr(unix.NFTA_RULE_USERDATA))
	for e := netlink.ReadAttrs(m.Attr(unix.NFTA_RULE_EXPRESSIONS)); e.Next(); {
		data := netlink.Attr(e.Data, unix.NFTA_EXPR_DATA)
		switch name := netlink.String(netlink.Attr(e.Data, unix.NFTA_EXPR_NAME)); name {
		case "reject":
			d.Rejects = true
		case "target":
			d.Rejects = d.Rejects || netlink.String(netlink.Attr(data, compatName)) == "REJECT"
		case "match":
			if netlink.String(netlink.Attr(data, compatName)) == "comment" {
				d.Comment = unix.ByteSliceToString(netlink.Attr(data, compatInfo))
			}
		}
	}
}

// comment finds the comment in a rule's user data: a list of type, length and value, in which it has the type 0.
func comment(udata []byte) string {
	for len(udata) >= 2 && len(udata) >= 2+int(udata[1]) {
		value := udata[2 : 2+int(udata[1])]
		if udata[0] == 0 {
			return unix.ByteSliceToString(value)
		}
		udata = udata[2+len(value):]
	}
	return ""
}

// familyByName is the inverse of familyName.
func familyByName(name string) byte {
	for _, family := range []byte{unix.NFPROTO_INET, unix.NFPROTO_IPV4, unix.NFPROTO_ARP, unix.NFPROTO_NETDEV, unix.NFPROTO_BRIDGE, unix.NFPROTO_IPV6} {
		if familyName(family) == name {
			return family
		}
	}
	return unix.NFPROTO_UNSPEC
}

// hookName is the name of a hook of a family.
func hookName(number uint32, family byte) string {
	hooks := []string{prerouting: "prerouting", input: "input", forward: "forward", output: "output", postrouting: "postrouting", 5: "ingress"}
	if family == unix.NFPROTO_NETDEV {
		hooks = []string{"ingress", "egress"}
	}
	if int(number) < len(hooks) {
		return hooks[number]
	}
	return fmt.Sprintf("hook %d", number)
}
