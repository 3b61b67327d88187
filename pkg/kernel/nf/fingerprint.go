package nf

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"hash"
	"maps"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/internal/netlink"
)

// Fingerprint digests all of the table except elements, counters, handles and the chain named except, in whose comment the caller may
// keep the last fingerprint, unless it is a base chain, which packets meet. Equal content has an equal fingerprint, in any process, whether it was written as text or by a Batch.
// Without a table it is "". objects has a digest of each chain with its rules, each set's or map's declaration, and each other
// object, by a name like "chain services" or "set endpoints": maps are sets, too.
func (t *Table) Fingerprint(ctx context.Context, except string) (string, map[string]string, error) {
	var objects map[string]string // written after ctx ended, too
	sum, err := consistent(ctx, t, "fingerprint the table", func() (sum string, err error) {
		sum, objects, err = t.fingerprint(except)
		return sum, err
	})
	if err != nil {
		return "", nil, err
	}
	return sum, objects, nil
}

// FingerprintLen is the number of bytes of the digest that are kept, so that the result fits into a comment.
const FingerprintLen = 16

// covered are the kinds of objects with what is digested of each: named counters, quotas and the like, and flow tables, so that those of
// other programs are noticed. Handles, use counts and whatever a later kernel adds are left out on purpose.
func covered() []coveredKind {
	return []coveredKind{
		{"set ", unix.NFT_MSG_GETSET, []uint16{unix.NFTA_SET_FLAGS, unix.NFTA_SET_KEY_TYPE, unix.NFTA_SET_KEY_LEN, unix.NFTA_SET_DATA_TYPE,
			unix.NFTA_SET_DATA_LEN, unix.NFTA_SET_POLICY, unix.NFTA_SET_DESC, unix.NFTA_SET_TIMEOUT, unix.NFTA_SET_GC_INTERVAL,
			unix.NFTA_SET_USERDATA, unix.NFTA_SET_OBJ_TYPE, AttrSetExpr, nftaSetExpressions}},
		{"chain ", unix.NFT_MSG_GETCHAIN, []uint16{unix.NFTA_CHAIN_HOOK, unix.NFTA_CHAIN_POLICY, unix.NFTA_CHAIN_TYPE, nftaChainFlags, AttrChainUserdata}},
		{"object ", unix.NFT_MSG_GETOBJ, []uint16{unix.NFTA_OBJ_TYPE}},
		{"object ", unix.NFT_MSG_GETFLOWTABLE, []uint16{attrName}},
	}
}

type coveredKind struct {
	name       string
	command    int
	attributes []uint16
}

func (t *Table) fingerprint(except string) (sum string, objects map[string]string, _ error) {
	objects = map[string]string{}
	err := t.Get(t.query(unix.NFT_MSG_GETTABLE, ""), func(m netlink.Message) error {
		objects["table"] = digestOf(m.Attrs(), unix.NFTA_TABLE_FLAGS, AttrTableUserdata).String()
		return nil
	})
	if errors.Is(err, unix.ENOENT) {
		return "", nil, nil
	}
	// Anonymous sets are part of the rules that use them, and their names depend on what else existed when they were created.
	anonymous := map[string]string{}
	for _, kind := range covered() {
		if err != nil {
			return "", nil, err
		}
		err = t.Dump(t.query(kind.command, ""), func(m netlink.Message) error {
			name, of := m.AttrString(nameAttr(kind.command)), digestOf(m.Attrs(), kind.attributes...).String()
			switch {
			case kind.command == unix.NFT_MSG_GETSET && decodeSet(m).flags&unix.NFT_SET_ANONYMOUS != 0:
				anonymous[name] = of
			case kind.command != unix.NFT_MSG_GETCHAIN || name != except || m.Attr(unix.NFTA_CHAIN_HOOK) != nil:
				objects[kind.name+name] += of
			}
			return nil
		})
	}
	for name := range anonymous {
		content, failed := t.fingerprintElements(name)
		anonymous[name] += content
		err = errors.Join(err, failed)
	}
	if err != nil {
		return "", nil, err
	}
	err = t.Rules(t.family, t.name, "", func(r Rule) { // those of a chain in their order
		if chain := r.Chain(); chain != except {
			of := digestOf(r.Attrs(), unix.NFTA_RULE_USERDATA)
			of.expressions(r.Expressions(), anonymous)
			objects["chain "+chain] += of.String()
		}
	})
	all := digestOf(netlink.Attrs{})
	for _, name := range slices.Sorted(maps.Keys(objects)) {
		all.item(0, []byte(name))
		all.item(1, []byte(objects[name]))
	}
	return all.String(), objects, err
}

// fingerprintElements digests a set's elements.
func (t *Table) fingerprintElements(set string) (string, error) {
	var elements [][]byte
	lists, err := t.elements(context.Background(), set)
	if err != nil {
		return "", err
	}
	for _, list := range lists {
		for a := netlink.ReadAttrs(list); a.Next(); {
			elements = append(elements, digestOf(a.Nested(), unix.NFTA_SET_ELEM_KEY, unix.NFTA_SET_ELEM_DATA, unix.NFTA_SET_ELEM_FLAGS,
				unix.NFTA_SET_ELEM_TIMEOUT, nftaSetElemKeyEnd).Sum(nil))
		}
	}
	slices.SortFunc(elements, bytes.Compare)
	return string(bytes.Join(elements, nil)), nil
}

// digest hashes items so that different sequences of items have different digests.
type digest struct{ hash.Hash }

// digestOf hashes the attributes of the given types.
func digestOf(a netlink.Attrs, types ...uint16) digest {
	d := digest{sha256.New()}
	for a.Next() {
		if slices.Contains(types, a.Type) {
			d.item(a.Type, a.Data)
		}
	}
	return d
}

func (d digest) String() string { return hex.EncodeToString(d.Sum(nil)[:FingerprintLen]) }

func (d digest) item(typ uint16, data []byte) {
	var header [10]byte
	binary.BigEndian.PutUint16(header[:], typ)
	binary.BigEndian.PutUint64(header[2:], uint64(len(data)))
	d.Write(header[:])
	d.Write(data)
}

func (d digest) expressions(list netlink.Attrs, anonymous map[string]string) {
	for list.Next() {
		d.expression(list.Data, anonymous)
	}
}

// expression hashes an expression without what packets change in it, and with the content of an anonymous set instead of its
// name.
func (d digest) expression(expr []byte, anonymous map[string]string) {
	text, a := ReadExpr(expr)
	name := string(text)
	d.item(0, text)
	for a.Next() {
		switch {
		case name == "counter" || name == "last" || name == "quota" && a.Type == unix.NFTA_QUOTA_CONSUMED:
		case name == "dynset" && a.Type == unix.NFTA_DYNSET_EXPR:
			d.expression(a.Data, anonymous)
		case name == "dynset" && a.Type == nftaDynsetExprs:
			d.expressions(a.Nested(), anonymous)
		case name == "lookup" && a.Type == unix.NFTA_LOOKUP_SET && anonymous[a.String()] != "":
			d.item(a.Type, []byte(anonymous[a.String()]))
		default:
			d.item(a.Type, a.Data)
		}
	}
}
