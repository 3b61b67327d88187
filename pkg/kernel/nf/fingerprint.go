package nf

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"hash"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/internal/netlink"
)

// Fingerprint digests all of the table except elements, counters, handles and the chain named except (in whose comment the caller may
// keep the last fingerprint). Equal content has an equal fingerprint, in any process, whether it was written as text or by a Batch.
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

func (t *Table) fingerprint(except string) (sum string, objects map[string]string, _ error) {
	d := digest{sha256.New(), map[string]string{}}
	err := t.Get(t.query(unix.NFT_MSG_GETTABLE, ""), func(m netlink.Message) error {
		d.attrs(m.Attrs(), unix.NFTA_TABLE_NAME, unix.NFTA_TABLE_FLAGS, nftaTableUserdata)
		return nil
	})
	if errors.Is(err, unix.ENOENT) {
		return "", nil, nil
	}
	if err != nil {
		return "", nil, err
	}
	anonymous, err := t.fingerprintSets(d)
	if err == nil {
		err = t.fingerprintChains(d, except)
	}
	if err == nil {
		err = t.fingerprintRules(d, except, anonymous)
	}
	if err == nil {
		err = t.fingerprintOthers(d)
	}
	return d.String(), d.objects, err
}

// fingerprintSets digests the declarations of sets, by name, and returns digests of the anonymous ones: these are part of the
// rules that use them, and their names depend on what else existed when they were created.
func (t *Table) fingerprintSets(d digest) (anonymous map[string]string, _ error) {
	declarations, anonymous := map[string]string{}, map[string]string{}
	err := t.Dump(t.query(unix.NFT_MSG_GETSET, ""), func(m netlink.Message) error {
		set := decodeSet(m)
		one := digest{Hash: sha256.New()}
		one.attrs(m.Attrs(), unix.NFTA_SET_FLAGS, unix.NFTA_SET_KEY_TYPE, unix.NFTA_SET_KEY_LEN, unix.NFTA_SET_DATA_TYPE,
			unix.NFTA_SET_DATA_LEN, unix.NFTA_SET_POLICY, unix.NFTA_SET_DESC, unix.NFTA_SET_TIMEOUT,
			unix.NFTA_SET_GC_INTERVAL, unix.NFTA_SET_USERDATA, unix.NFTA_SET_OBJ_TYPE)
		if expr := m.Attr(nftaSetExpr); expr != nil {
			one.expression(expr, nil)
		}
		if exprs := m.Attr(nftaSetExpressions); exprs != nil {
			one.expressions(netlink.ReadAttrs(exprs), nil)
		}
		if set.flags&unix.NFT_SET_ANONYMOUS != 0 {
			anonymous[set.Name] = one.String()
		} else {
			declarations[set.Name] = one.String()
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	d.sorted("set ", declarations)
	for name := range anonymous {
		content, err := t.fingerprintElements(name)
		if err != nil {
			return nil, err
		}
		anonymous[name] += content
	}
	return anonymous, nil
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
			one := digest{Hash: sha256.New()}
			one.attrs(a.Nested(), unix.NFTA_SET_ELEM_KEY, unix.NFTA_SET_ELEM_DATA, unix.NFTA_SET_ELEM_FLAGS,
				unix.NFTA_SET_ELEM_TIMEOUT, nftaSetElemKeyEnd)
			elements = append(elements, one.Sum(nil))
		}
	}
	slices.SortFunc(elements, bytes.Compare)
	return string(bytes.Join(elements, nil)), nil
}

func (t *Table) fingerprintChains(d digest, except string) error {
	chains := map[string]string{}
	err := t.Dump(t.query(unix.NFT_MSG_GETCHAIN, ""), func(m netlink.Message) error {
		name := m.AttrString(unix.NFTA_CHAIN_NAME)
		if name == except {
			return nil
		}
		one := digest{Hash: sha256.New()}
		one.attrs(m.Attrs(), unix.NFTA_CHAIN_HOOK, unix.NFTA_CHAIN_POLICY, unix.NFTA_CHAIN_TYPE, nftaChainFlags,
			nftaChainUserdata)
		chains[name] = one.String()
		return nil
	})
	d.sorted("chain ", chains)
	return err
}

// fingerprintRules digests each chain's rules in their order.
func (t *Table) fingerprintRules(d digest, except string, anonymous map[string]string) error {
	rules := map[string]string{}
	err := t.Rules(t.family, t.name, "", func(r Rule) {
		chain := r.Chain()
		if chain == except {
			return
		}
		one := digest{Hash: sha256.New()}
		one.expressions(r.Expressions(), anonymous)
		one.attrs(r.Attrs(), unix.NFTA_RULE_USERDATA)
		rules[chain] += one.String()
	})
	d.sorted("chain ", rules)
	return err
}

// fingerprintOthers digests objects of other kinds, so that those of other processes are noticed: named counters, quotas and
// the like, and flow tables.
func (t *Table) fingerprintOthers(d digest) error {
	for _, kind := range []struct {
		command  int
		property uint16 // that is part of the digest
	}{{unix.NFT_MSG_GETOBJ, unix.NFTA_OBJ_TYPE}, {unix.NFT_MSG_GETFLOWTABLE, attrName}} {
		found := map[string]string{}
		err := t.Dump(t.query(kind.command, ""), func(m netlink.Message) error {
			found[m.AttrString(attrName)] = string(m.Attr(kind.property))
			return nil
		})
		if err != nil {
			return err
		}
		d.sorted("object ", found)
	}
	return nil
}

// digest hashes items so that different sequences of items have different digests.
type digest struct {
	hash.Hash
	// objects collects the digests of single objects, unless it is nil.
	objects map[string]string
}

func (d digest) String() string { return hex.EncodeToString(d.Sum(nil)[:FingerprintLen]) }

func (d digest) item(typ uint16, data []byte) {
	var header [10]byte
	binary.BigEndian.PutUint16(header[:], typ)
	binary.BigEndian.PutUint64(header[2:], uint64(len(data)))
	d.Write(header[:])
	d.Write(data)
}

// attrs hashes the attributes of the given types. It leaves out others on purpose: handles, use counts, and whatever a later
// kernel adds.
func (d digest) attrs(a netlink.Attrs, types ...uint16) {
	for a.Next() {
		if slices.Contains(types, a.Type) {
			d.item(a.Type, a.Data)
		}
	}
}

// sorted hashes a map from the names of objects of a kind to their content, in the order of the names.
func (d digest) sorted(kind string, m map[string]string) {
	d.item(0, binary.BigEndian.AppendUint64(nil, uint64(len(m))))
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		d.item(1, []byte(k))
		d.item(2, []byte(m[k]))
		d.objects[kind+k] += m[k]
	}
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
