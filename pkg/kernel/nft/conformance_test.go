package nft_test

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"
	"sigs.k8s.io/knftables"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft/nfttest"
)

// A step changes a table, by text or by a batch.
type step struct {
	text  func(tx *nft.Transaction)
	batch func(b *nf.Batch)
}

func (s step) run(ctx context.Context, t nft.Table) error {
	if s.text != nil {
		tx := t.NewTransaction()
		s.text(tx)
		return t.Run(ctx, tx)
	}
	b := t.NewBatch()
	s.batch(b)
	return t.Commit(ctx, b)
}

func text(f func(tx *nft.Transaction)) step { return step{text: f} }
func batch(f func(b *nf.Batch)) step        { return step{batch: f} }

// frontendKey is `10.96.x.y . tcp . 80`, and slotKey the same with a slot.
func frontendKey(i int) []byte {
	return []byte{10, 96, byte(i >> 8), byte(i), unix.IPPROTO_TCP, 0, 0, 0, 0, 80, 0, 0}
}

func slotKey(i, slot int) []byte {
	return binary.NativeEndian.AppendUint32(frontendKey(i), uint32(slot))
}

// endpointValue is `10.0.x.y . 8080`.
func endpointValue(i int) []byte {
	return []byte{10, 0, byte(i >> 8), byte(i), 0x1f, 0x90, 0, 0}
}

const (
	endpointsType = "ip daddr . meta l4proto . th dport . numgen random mod 2 : ip daddr . th dport"
	servicesType  = "ip daddr . meta l4proto . th dport : verdict"
	pickRule      = "dnat ip to ip daddr . meta l4proto . th dport . numgen random mod 2 map @endpoints"
)

// world is the table that all cases begin with: each kind of object, in use and not.
func world(tx *nft.Transaction) {
	tx.Add(&knftables.Table{Comment: new("rules for kube-proxy")})
	tx.Add(&knftables.Map{Name: "endpoints", TypeOf: endpointsType + " ; counter"})
	tx.Add(&knftables.Map{Name: "services", TypeOf: servicesType + " ; counter"})
	tx.Add(&knftables.Map{Name: "unused-map", TypeOf: endpointsType})
	tx.Add(&knftables.Map{Name: "typed", Type: "ipv4_addr . inet_proto . inet_service : ipv4_addr . inet_service"})
	tx.Add(&knftables.Map{Name: "clients", TypeOf: "ip saddr : ip daddr . th dport", Size: knftables.PtrTo[uint64](2),
		Flags: []knftables.SetFlag{knftables.DynamicFlag, knftables.TimeoutFlag}})
	tx.Add(&knftables.Set{Name: "nodeports", Type: "inet_service"})
	tx.Add(&knftables.Set{Name: "unused-set", Type: "ipv4_addr"})
	tx.Add(&knftables.Set{Name: "full", Type: "ipv4_addr", Size: knftables.PtrTo[uint64](1)})
	tx.Add(&knftables.Element{Set: "full", Key: []string{"10.0.0.1"}})
	tx.Add(&knftables.Set{Name: "pods", Type: "ipv4_addr", Flags: []knftables.SetFlag{knftables.IntervalFlag}})
	tx.Add(&knftables.Counter{Name: "unused-counter"})
	tx.Add(&knftables.Counter{Name: "counted"})
	tx.Add(&knftables.Chain{Name: "pick-2"})
	tx.Add(&knftables.Rule{Chain: "pick-2", Rule: pickRule})
	tx.Add(&knftables.Chain{Name: "unused"})
	tx.Add(&knftables.Rule{Chain: "unused", Rule: "ip saddr @unused-set drop"})
	tx.Add(&knftables.Rule{Chain: "unused", Rule: "counter name counted"})
	tx.Add(&knftables.Chain{Name: "services", Comment: new("where a packet goes")})
	tx.Add(&knftables.Rule{Chain: "services", Rule: "ip daddr . meta l4proto . th dport vmap @services"})
	tx.Add(prerouting(nil))
	tx.Add(&knftables.Rule{Chain: "prerouting", Rule: "jump services", Comment: new("the way in")})
}

// prerouting is the world's base chain.
func prerouting(policy *knftables.BaseChainPolicy) *knftables.Chain {
	return &knftables.Chain{Name: "prerouting", Type: knftables.PtrTo(knftables.NATType), Hook: knftables.PtrTo(knftables.PreroutingHook),
		Priority: knftables.PtrTo(knftables.DNATPriority), Policy: policy}
}

// elements are the elements of the world.
func elements(b *nf.Batch) {
	b.Add("endpoints", &nf.Element{Key: slotKey(1, 0), Value: endpointValue(1)})
	b.Add("endpoints", &nf.Element{Key: slotKey(1, 1), Value: endpointValue(2), Comment: "default/a-2"})
	b.Add("services", &nf.Element{Key: frontendKey(1), Chain: "pick-2", Comment: "default/a:http"})
	b.Add("nodeports", &nf.Element{Key: []byte{0x75, 0x30}})
	b.Add("clients", &nf.Element{Key: []byte{10, 0, 0, 1}, Value: endpointValue(1)})
}

// conformanceCase is one operation on the world. Its name is verb, object and situation.
type conformanceCase struct {
	name string
	do   step
	want unix.Errno
}

// errAny is an error of nft itself, without a number.
const errAny = unix.Errno(0xffff)

// tableCases are operations as text on the table.
func tableCases() []conformanceCase {
	return []conformanceCase{
		{name: "add/table/present", do: text(func(tx *nft.Transaction) { tx.Add(&knftables.Table{}) })},
		{name: "create/table/present", do: text(func(tx *nft.Transaction) { tx.Do((*knftables.Transaction).Create, &knftables.Table{}) }), want: unix.EEXIST},
		{name: "flush/table/present", do: text(func(tx *nft.Transaction) { tx.Flush(&knftables.Table{}) })},
		{name: "delete/table/present", do: text(func(tx *nft.Transaction) { tx.Delete(&knftables.Table{}) })},
		{name: "delete/table/absent", want: unix.ENOENT, do: text(func(tx *nft.Transaction) {
			tx.Delete(&knftables.Table{})
			tx.Delete(&knftables.Table{})
		})},
		{name: "add/table/absent", do: text(func(tx *nft.Transaction) {
			tx.Delete(&knftables.Table{})
			tx.Add(&knftables.Table{})
		})},
	}
}

// chainCases are operations as text on chains.
func chainCases() []conformanceCase {
	return []conformanceCase{
		{name: "add/chain/absent", do: text(func(tx *nft.Transaction) { tx.Add(&knftables.Chain{Name: "new"}) })},
		{name: "add/chain/present", do: text(func(tx *nft.Transaction) { tx.Add(&knftables.Chain{Name: "services"}) })},
		{name: "create/chain/present", want: unix.EEXIST, do: text(func(tx *nft.Transaction) { tx.Do((*knftables.Transaction).Create, &knftables.Chain{Name: "services"}) })},
		{name: "add/chain/base with another policy", do: text(func(tx *nft.Transaction) {
			tx.Add(prerouting(knftables.PtrTo(knftables.DropPolicy)))
		})},
		{name: "add/chain/base without a policy", do: text(func(tx *nft.Transaction) {
			tx.Add(prerouting(knftables.PtrTo(knftables.DropPolicy)))
			tx.Add(prerouting(nil))
		})},
		{name: "add/chain/base with the policy again", do: text(func(tx *nft.Transaction) {
			tx.Add(prerouting(knftables.PtrTo(knftables.DropPolicy)))
			tx.Add(prerouting(knftables.PtrTo(knftables.AcceptPolicy)))
		})},
		{name: "flush/chain/present", do: text(func(tx *nft.Transaction) { tx.Flush(&knftables.Chain{Name: "services"}) })},
		{name: "flush/chain/absent", want: unix.ENOENT, do: text(func(tx *nft.Transaction) { tx.Flush(&knftables.Chain{Name: "none"}) })},
		{name: "delete/chain/with rules", do: text(func(tx *nft.Transaction) { tx.Delete(&knftables.Chain{Name: "unused"}) })},
		{name: "delete/chain/base", do: text(func(tx *nft.Transaction) { tx.Delete(&knftables.Chain{Name: "prerouting"}) })},
		{name: "delete/chain/absent", want: unix.ENOENT, do: text(func(tx *nft.Transaction) { tx.Delete(&knftables.Chain{Name: "none"}) })},
		{name: "delete/chain/used by a rule", want: unix.EBUSY, do: text(func(tx *nft.Transaction) { tx.Delete(&knftables.Chain{Name: "services"}) })},
		{name: "delete/chain/used by an element", want: unix.EBUSY, do: text(func(tx *nft.Transaction) { tx.Delete(&knftables.Chain{Name: "pick-2"}) })},
		{name: "delete/chain/used by a rule that goes first", do: text(func(tx *nft.Transaction) {
			tx.Flush(&knftables.Chain{Name: "prerouting"})
			tx.Delete(&knftables.Chain{Name: "services"})
		})},
		{name: "delete/chain/used by a rule that goes later", want: unix.EBUSY, do: text(func(tx *nft.Transaction) {
			tx.Delete(&knftables.Chain{Name: "services"})
			tx.Flush(&knftables.Chain{Name: "prerouting"})
		})},
	}
}

// ruleTextCases are operations as text on rules.
func ruleTextCases() []conformanceCase {
	return []conformanceCase{
		{name: "add/rule/plain", do: text(func(tx *nft.Transaction) {
			tx.Add(&knftables.Rule{Chain: "unused", Rule: "ip saddr 10.0.0.1 accept"})
		})},
		{name: "insert/rule/plain", do: text(func(tx *nft.Transaction) {
			tx.Do((*knftables.Transaction).Insert, &knftables.Rule{Chain: "unused", Rule: "ip saddr 10.0.0.1 accept"})
		})},
		{name: "add/rule/chain absent", want: unix.ENOENT, do: text(func(tx *nft.Transaction) {
			tx.Add(&knftables.Rule{Chain: "none", Rule: "accept"})
		})},
		{name: "add/rule/target absent", want: unix.ENOENT, do: text(func(tx *nft.Transaction) {
			tx.Add(&knftables.Rule{Chain: "unused", Rule: "goto none"})
		})},
		{name: "add/rule/target base", want: unix.EOPNOTSUPP, do: text(func(tx *nft.Transaction) {
			tx.Add(&knftables.Rule{Chain: "unused", Rule: "goto prerouting"})
		})},
		{name: "add/rule/set absent", want: unix.ENOENT, do: text(func(tx *nft.Transaction) {
			tx.Add(&knftables.Rule{Chain: "unused", Rule: "ip saddr @none accept"})
		})},
		{name: "add/rule/circle", want: unix.EMLINK, do: text(func(tx *nft.Transaction) {
			tx.Add(&knftables.Rule{Chain: "services", Rule: "goto unused"})
			tx.Add(&knftables.Rule{Chain: "unused", Rule: "goto services"})
		})},
		{name: "add/rule/reads a loaded map", want: errAny, do: text(func(tx *nft.Transaction) {
			tx.Add(&knftables.Rule{Chain: "unused", Rule: pickRule})
		})},
		{name: "add/rule/reads a new map", do: text(func(tx *nft.Transaction) {
			tx.Add(&knftables.Map{Name: "new", TypeOf: endpointsType})
			tx.Add(&knftables.Rule{Chain: "unused", Rule: strings.ReplaceAll(pickRule, "@endpoints", "@new")})
		})},
		{name: "add/rule/reads a loaded map declared with type", do: text(func(tx *nft.Transaction) {
			tx.Add(&knftables.Rule{Chain: "unused", Rule: "dnat ip to ip daddr . meta l4proto . th dport map @typed"})
		})},
		{name: "add/rule/nat as a condition", do: text(func(tx *nft.Transaction) {
			tx.Add(&knftables.Chain{Name: "filter", Type: knftables.PtrTo(knftables.FilterType),
				Hook: knftables.PtrTo(knftables.PreroutingHook), Priority: knftables.PtrTo(knftables.FilterPriority)})
			tx.Add(&knftables.Rule{Chain: "filter", Rule: "ct state new ct status dnat drop"})
		})},
		{name: "add/rule/nat in a filter chain", want: unix.EOPNOTSUPP, do: text(func(tx *nft.Transaction) {
			tx.Add(&knftables.Chain{Name: "filter", Type: knftables.PtrTo(knftables.FilterType),
				Hook: knftables.PtrTo(knftables.PreroutingHook), Priority: knftables.PtrTo(knftables.FilterPriority)})
			tx.Add(&knftables.Rule{Chain: "filter", Rule: "goto services"})
		})},
	}
}

// counterCases are operations as text on named counters.
func counterCases() []conformanceCase {
	return []conformanceCase{
		{name: "add/counter/absent", do: text(func(tx *nft.Transaction) { tx.Add(&knftables.Counter{Name: "new"}) })},
		{name: "add/counter/present", do: text(func(tx *nft.Transaction) { tx.Add(&knftables.Counter{Name: "counted"}) })},
		{name: "create/counter/present", want: unix.EEXIST, do: text(func(tx *nft.Transaction) { tx.Do((*knftables.Transaction).Create, &knftables.Counter{Name: "counted"}) })},
		{name: "delete/counter/present", do: text(func(tx *nft.Transaction) { tx.Delete(&knftables.Counter{Name: "unused-counter"}) })},
		{name: "delete/counter/absent", want: unix.ENOENT, do: text(func(tx *nft.Transaction) { tx.Delete(&knftables.Counter{Name: "none"}) })},
		{name: "delete/counter/in use", want: unix.EBUSY, do: text(func(tx *nft.Transaction) { tx.Delete(&knftables.Counter{Name: "counted"}) })},
		{name: "delete/counter/of a rule that goes first", do: text(func(tx *nft.Transaction) {
			tx.Flush(&knftables.Chain{Name: "unused"})
			tx.Delete(&knftables.Counter{Name: "counted"})
		})},
		{name: "add/rule/counter absent", want: unix.ENOENT, do: text(func(tx *nft.Transaction) {
			tx.Add(&knftables.Rule{Chain: "unused", Rule: "counter name none"})
		})},
	}
}

// setCases are operations as text on sets and maps.
func setCases() []conformanceCase {
	return []conformanceCase{
		{name: "add/set/absent", do: text(func(tx *nft.Transaction) { tx.Add(&knftables.Set{Name: "new", Type: "ipv4_addr"}) })},
		{name: "add/set/present", do: text(func(tx *nft.Transaction) { tx.Add(&knftables.Set{Name: "nodeports", Type: "inet_service"}) })},
		{name: "add/set/other type", want: unix.EEXIST, do: text(func(tx *nft.Transaction) { tx.Add(&knftables.Set{Name: "nodeports", Type: "ipv4_addr"}) })},
		{name: "create/set/present", want: unix.EEXIST, do: text(func(tx *nft.Transaction) {
			tx.Do((*knftables.Transaction).Create, &knftables.Set{Name: "nodeports", Type: "inet_service"})
		})},
		{name: "flush/set/present", do: text(func(tx *nft.Transaction) { tx.Flush(&knftables.Set{Name: "nodeports"}) })},
		{name: "flush/set/absent", want: unix.ENOENT, do: text(func(tx *nft.Transaction) { tx.Flush(&knftables.Set{Name: "none"}) })},
		{name: "delete/set/full", do: text(func(tx *nft.Transaction) { tx.Delete(&knftables.Set{Name: "full"}) })},
		{name: "delete/set/absent", want: unix.ENOENT, do: text(func(tx *nft.Transaction) { tx.Delete(&knftables.Set{Name: "none"}) })},
		{name: "delete/set/in use", want: unix.EBUSY, do: text(func(tx *nft.Transaction) { tx.Delete(&knftables.Set{Name: "unused-set"}) })},
		{name: "add/map/absent", do: text(func(tx *nft.Transaction) { tx.Add(&knftables.Map{Name: "new", Type: "ipv4_addr : verdict"}) })},
		{name: "add/map/present", do: text(func(tx *nft.Transaction) {
			tx.Add(&knftables.Map{Name: "services", TypeOf: servicesType + " ; counter"})
		})},
		{name: "create/map/present", want: unix.EEXIST, do: text(func(tx *nft.Transaction) {
			tx.Do((*knftables.Transaction).Create, &knftables.Map{Name: "services", TypeOf: servicesType + " ; counter"})
		})},
		{name: "flush/map/present", do: text(func(tx *nft.Transaction) { tx.Flush(&knftables.Map{Name: "services"}) })},
		{name: "flush/map/absent", want: unix.ENOENT, do: text(func(tx *nft.Transaction) { tx.Flush(&knftables.Map{Name: "none"}) })},
		{name: "delete/map/unused", do: text(func(tx *nft.Transaction) { tx.Delete(&knftables.Map{Name: "unused-map"}) })},
		{name: "delete/map/in use", want: unix.EBUSY, do: text(func(tx *nft.Transaction) { tx.Delete(&knftables.Map{Name: "services"}) })},
		{name: "delete/map/absent", want: unix.ENOENT, do: text(func(tx *nft.Transaction) { tx.Delete(&knftables.Map{Name: "none"}) })},
		{name: "delete/chain/after its map is flushed", do: text(func(tx *nft.Transaction) {
			tx.Flush(&knftables.Map{Name: "services"})
			tx.Delete(&knftables.Chain{Name: "pick-2"})
		})},
	}
}

// elementCases are operations as text on elements.
func elementCases() []conformanceCase {
	return []conformanceCase{
		{name: "add/element/interval", do: text(func(tx *nft.Transaction) {
			tx.Add(&knftables.Element{Set: "pods", Key: []string{"10.0.0.0/8"}})
		})},
		{name: "add/element/present", do: text(func(tx *nft.Transaction) {
			tx.Add(&knftables.Element{Set: "nodeports", Key: []string{"30000"}})
		})},
		{name: "create/element/present", want: unix.EEXIST, do: text(func(tx *nft.Transaction) {
			tx.Do((*knftables.Transaction).Create, &knftables.Element{Set: "nodeports", Key: []string{"30000"}})
		})},
		{name: "delete/element/present", do: text(func(tx *nft.Transaction) {
			tx.Delete(&knftables.Element{Set: "nodeports", Key: []string{"30000"}})
		})},
		{name: "delete/element/absent", want: unix.ENOENT, do: text(func(tx *nft.Transaction) {
			tx.Delete(&knftables.Element{Set: "nodeports", Key: []string{"30001"}})
		})},
		{name: "add/element/other value", want: unix.EEXIST, do: text(func(tx *nft.Transaction) {
			tx.Add(&knftables.Chain{Name: "new"})
			tx.Add(&knftables.Element{Map: "services", Key: []string{"10.96.0.1", "tcp", "80"}, Value: []string{"goto new"}})
		})},
		{name: "add/element/verdict map", do: text(func(tx *nft.Transaction) {
			tx.Add(&knftables.Element{Map: "services", Key: []string{"10.96.0.2", "udp", "53"}, Value: []string{"goto pick-2"}, Comment: new("x")})
		})},
		{name: "add/element/no target", want: unix.ENOENT, do: text(func(tx *nft.Transaction) {
			tx.Add(&knftables.Element{Map: "services", Key: []string{"10.96.0.2", "udp", "53"}, Value: []string{"goto none"}})
		})},
		{name: "add/element/full set", want: unix.ENFILE, do: text(func(tx *nft.Transaction) {
			tx.Add(&knftables.Element{Set: "full", Key: []string{"10.0.0.2"}})
		})},
	}
}

// batchElementCases are a batch's operations on elements.
func batchElementCases() []conformanceCase {
	endpoint := func(i, slot int) *nf.Element { return &nf.Element{Key: slotKey(i, slot), Value: endpointValue(i)} }
	service := func(i int, chain string) *nf.Element { return &nf.Element{Key: frontendKey(i), Chain: chain} }
	return []conformanceCase{
		{name: "Add/map/new", do: batch(func(b *nf.Batch) { b.Add("endpoints", endpoint(2, 0)) })},
		{name: "Add/map/present", want: unix.EEXIST, do: batch(func(b *nf.Batch) {
			b.Add("endpoints", endpoint(2, 0))
			b.Add("endpoints", endpoint(1, 0))
			b.Add("endpoints", endpoint(2, 1))
		})},
		{name: "Add/map/twice", want: unix.EEXIST, do: batch(func(b *nf.Batch) {
			b.Add("endpoints", endpoint(2, 0))
			b.Add("endpoints", endpoint(2, 0))
		})},
		{name: "Add/map/short key", want: unix.EINVAL, do: batch(func(b *nf.Batch) {
			b.Add("endpoints", &nf.Element{Key: frontendKey(1), Value: endpointValue(1)})
		})},
		{name: "Add/map/short value", want: unix.EINVAL, do: batch(func(b *nf.Batch) {
			b.Add("endpoints", &nf.Element{Key: slotKey(2, 0), Value: endpointValue(1)[:4]})
		})},
		{name: "Add/map/no value", want: unix.EINVAL, do: batch(func(b *nf.Batch) { b.Add("endpoints", &nf.Element{Key: slotKey(2, 0)}) })},
		{name: "Add/map/verdict", want: unix.EINVAL, do: batch(func(b *nf.Batch) {
			b.Add("endpoints", &nf.Element{Key: slotKey(2, 0), Chain: "pick-2"})
		})},
		{name: "Add/verdict map/new", do: batch(func(b *nf.Batch) { b.Add("services", service(2, "pick-2")) })},
		{name: "Add/verdict map/value", want: unix.EINVAL, do: batch(func(b *nf.Batch) {
			b.Add("services", &nf.Element{Key: frontendKey(2), Value: endpointValue(1)})
		})},
		{name: "Add/verdict map/no target", want: unix.ENOENT, do: batch(func(b *nf.Batch) { b.Add("services", service(2, "none")) })},
		{name: "Add/verdict map/base chain", want: unix.EOPNOTSUPP, do: batch(func(b *nf.Batch) { b.Add("services", service(2, "prerouting")) })},
		{name: "Add/verdict map/circle", want: unix.EMLINK, do: batch(func(b *nf.Batch) { b.Add("services", service(2, "services")) })},
		{name: "Add/set/new", do: batch(func(b *nf.Batch) {
			b.Add("nodeports", &nf.Element{Key: []byte{0x75, 0x31}, Comment: "default/b:http"})
		})},
		{name: "Add/set/value", want: unix.EINVAL, do: batch(func(b *nf.Batch) {
			b.Add("nodeports", &nf.Element{Key: []byte{0x75, 0x31}, Value: []byte{1, 2, 3, 4}})
		})},
		{name: "Add/set/full", want: unix.ENFILE, do: batch(func(b *nf.Batch) { b.Add("full", &nf.Element{Key: []byte{10, 0, 0, 2}}) })},
		{name: "Add/set/absent", want: unix.ENOENT, do: batch(func(b *nf.Batch) { b.Add("none", service(2, "pick-2")) })},
		{name: "Delete/map/present", do: batch(func(b *nf.Batch) { b.Delete("endpoints", slotKey(1, 0)) })},
		{name: "Delete/map/absent", want: unix.ENOENT, do: batch(func(b *nf.Batch) {
			b.Delete("endpoints", slotKey(1, 0))
			b.Delete("endpoints", slotKey(2, 0))
		})},
		{name: "Delete/map/twice", want: unix.ENOENT, do: batch(func(b *nf.Batch) {
			b.Delete("endpoints", slotKey(1, 0))
			b.Delete("endpoints", slotKey(1, 0))
		})},
		{name: "Delete/map/short key", want: unix.EINVAL, do: batch(func(b *nf.Batch) { b.Delete("endpoints", frontendKey(1)) })},
		{name: "Delete/verdict map/present", do: batch(func(b *nf.Batch) { b.Delete("services", frontendKey(1)) })},
		{name: "Delete/set/present", do: batch(func(b *nf.Batch) { b.Delete("nodeports", []byte{0x75, 0x30}) })},
		{name: "Delete/set/absent", want: unix.ENOENT, do: batch(func(b *nf.Batch) { b.Delete("none", frontendKey(1)) })},
		{name: "Replace/map/present", do: batch(func(b *nf.Batch) {
			b.Delete("endpoints", slotKey(1, 0))
			b.Add("endpoints", &nf.Element{Key: slotKey(1, 0), Value: endpointValue(7), Comment: "new"})
		})},
		{name: "Replace/map/wrong order", want: unix.EEXIST, do: batch(func(b *nf.Batch) {
			b.Add("endpoints", endpoint(1, 0))
			b.Delete("endpoints", slotKey(1, 0))
		})},
		{name: "Replace/verdict map/with its chain", do: batch(func(b *nf.Batch) {
			b.AddChain(nf.Chain{Name: "new", Comment: "made in a batch"})
			nft.AddRule(b, "new", nft.Rule{nft.SetMark(1)})
			b.Delete("services", frontendKey(1))
			b.Add("services", service(1, "new"))
			b.DeleteChain("pick-2")
		})},
		{name: "Add/map/nothing at all", do: batch(func(*nf.Batch) {})},
		{name: "Add/verdict map/circle among others", want: unix.EMLINK, do: batch(func(b *nf.Batch) {
			b.Add("endpoints", endpoint(2, 0))
			b.Add("services", service(2, "pick-2"))
			b.Add("services", service(3, "unused"))
			b.Add("services", service(4, "services"))
			b.Add("services", service(5, "pick-2"))
		})},
	}
}

// ensureCases are a batch's additions of elements that may exist.
func ensureCases() []conformanceCase {
	client := func(i int) []byte { return []byte{10, 0, 0, byte(i)} }
	return []conformanceCase{
		{name: "Ensure/map/present", do: batch(func(b *nf.Batch) {
			b.Ensure("clients", &nf.Element{Key: client(1), Value: endpointValue(1)})
		})},
		{name: "Ensure/map/absent", do: batch(func(b *nf.Batch) {
			b.Ensure("clients", &nf.Element{Key: client(2), Value: endpointValue(1)})
		})},
		{name: "Ensure/map/before Delete", do: batch(func(b *nf.Batch) {
			b.Ensure("clients", &nf.Element{Key: client(1), Value: endpointValue(1)})
			b.Ensure("clients", &nf.Element{Key: client(2), Value: endpointValue(1)})
			b.Delete("clients", client(1))
			b.Delete("clients", client(2))
		})},
		{name: "Ensure/map/between others", want: unix.EEXIST, do: batch(func(b *nf.Batch) {
			b.Ensure("clients", &nf.Element{Key: client(1), Value: endpointValue(1)})
			b.Add("clients", &nf.Element{Key: client(2), Value: endpointValue(1)})
			b.Add("clients", &nf.Element{Key: client(1), Value: endpointValue(1)})
		})},
		{name: "Ensure/map/other value", want: unix.EEXIST, do: batch(func(b *nf.Batch) {
			b.Ensure("clients", &nf.Element{Key: client(3), Value: endpointValue(1)})
			b.Ensure("clients", &nf.Element{Key: client(1), Value: endpointValue(2)})
		})},
		{name: "Ensure/map/full", want: unix.ENFILE, do: batch(func(b *nf.Batch) {
			b.Ensure("clients", &nf.Element{Key: client(2), Value: endpointValue(1)})
			b.Ensure("clients", &nf.Element{Key: client(3), Value: endpointValue(1)})
		})},
	}
}

// batchChainCases are a batch's operations on chains and rules.
func batchChainCases() []conformanceCase {
	return []conformanceCase{
		{name: "AddChain/chain/present", want: unix.EEXIST, do: batch(func(b *nf.Batch) { b.AddChain(nf.Chain{Name: "services"}) })},
		{name: "DeleteChain/chain/with rules", do: batch(func(b *nf.Batch) { b.DeleteChain("unused") })},
		{name: "DeleteChain/chain/absent", want: unix.ENOENT, do: batch(func(b *nf.Batch) { b.DeleteChain("none") })},
		{name: "DeleteChain/chain/in use", want: unix.EBUSY, do: batch(func(b *nf.Batch) {
			b.Add("endpoints", &nf.Element{Key: slotKey(2, 0), Value: endpointValue(2)})
			b.DeleteChain("pick-2")
			b.Delete("services", frontendKey(1))
		})},
		{name: "DeleteTable/table/present", do: batch(func(b *nf.Batch) { b.DeleteTable() })},
		{name: "DeleteTable/table/after an element", do: batch(func(b *nf.Batch) {
			b.Delete("nodeports", []byte{0x75, 0x30})
			b.DeleteTable()
		})},
		{name: "DeleteTable/table/absent", want: unix.ENOENT, do: batch(func(b *nf.Batch) {
			b.DeleteTable()
			b.DeleteTable()
		})},
		{name: "FlushChain/chain/present", do: batch(func(b *nf.Batch) { b.FlushChain("services") })},
		{name: "FlushChain/chain/absent", want: unix.ENOENT, do: batch(func(b *nf.Batch) { b.FlushChain("none") })},
		{name: "AddRule/rule/plain", do: batch(func(b *nf.Batch) {
			nft.AddRule(b, "unused", nft.Rule{nft.Lookup{nft.Concat{nft.SourceAddress}, "unused-set"}, nft.SetMark(1)})
		})},
		{name: "AddRule/rule/chain absent", want: unix.ENOENT, do: batch(func(b *nf.Batch) { nft.AddRule(b, "none", nft.Rule{nft.SetMark(1)}) })},
		{name: "AddRule/rule/target absent", want: unix.ENOENT, do: batch(func(b *nf.Batch) { nft.AddRule(b, "unused", nft.Rule{nft.Goto("none")}) })},
		{name: "AddRule/rule/target base", want: unix.EOPNOTSUPP, do: batch(func(b *nf.Batch) { nft.AddRule(b, "unused", nft.Rule{nft.Goto("prerouting")}) })},
		{name: "AddRule/rule/set absent", want: unix.ENOENT, do: batch(func(b *nf.Batch) {
			nft.AddRule(b, "unused", nft.Rule{nft.Lookup{nft.Concat{nft.SourceAddress}, "none"}})
		})},
		{name: "AddRule/rule/update", do: batch(func(b *nf.Batch) {
			nft.AddRule(b, "unused", nft.Rule{nft.Update{Map: "clients", Key: nft.Concat{nft.SourceAddress}, Value: nft.Concat{nft.DestinationAddress, nft.DestinationPort}, Timeout: time.Hour}})
		})},
		{name: "AddRule/rule/update without the flags", want: unix.EOPNOTSUPP, do: batch(func(b *nf.Batch) {
			nft.AddRule(b, "unused", nft.Rule{nft.Update{Map: "typed", Key: nft.Concat{nft.SourceAddress, nft.Protocol, nft.DestinationPort}, Value: nft.Concat{nft.DestinationAddress, nft.DestinationPort}, Timeout: time.Hour}})
		})},
		{name: "AddRule/rule/circle", want: unix.EMLINK, do: batch(func(b *nf.Batch) {
			nft.AddRule(b, "services", nft.Rule{nft.Goto("unused")})
			nft.AddRule(b, "unused", nft.Rule{nft.Goto("services")})
		})},
		{name: "AddChain/chain/absent", do: batch(func(b *nf.Batch) { b.AddChain(nf.Chain{Name: "new"}) })},
	}
}

// conformanceCases are all of them.
func conformanceCases() []conformanceCase {
	return slices.Concat(tableCases(), chainCases(), ruleTextCases(), setCases(), counterCases(), elementCases(), batchElementCases(), ensureCases(), batchChainCases())
}

// TestKernelConformance applies each operation to the kernel's table and to the fake: both must accept it, or refuse it with
// the same number and name the same operation, notify of the same elements, and hold the same afterwards.
func TestKernelConformance(t *testing.T) {
	for _, c := range conformanceCases() {
		t.Run(c.name, func(t *testing.T) {
			kernel, fake := openKernel(t, nf.IPv4), nfttest.New(nf.IPv4, testTable)
			for _, table := range []nft.Table{kernel, fake} {
				for _, s := range []step{text(world), batch(elements)} {
					if err := s.run(t.Context(), table); err != nil {
						t.Fatalf("%T: %v", table, err)
					}
				}
			}
			var moved [2]uint32
			var noticed [2][]nf.Object
			for i, table := range []nft.Table{kernel, fake} {
				before, _ := generation(table)
				watch := fake.Watch()
				if table == nft.Table(kernel) {
					var err error
					if watch, err = nf.OpenWatch(nf.TableName{Family: unix.NFPROTO_IPV4, Name: testTable}); err != nil {
						t.Fatal(err)
					}
				}
				t.Cleanup(func() { _ = watch.Close() })
				err := c.do.run(t.Context(), table)
				after, _ := generation(table)
				moved[i], noticed[i] = after.Since(before), noticedBy(watch.Take())
				checkError(t, table, c, err)
			}
			if diff := gocmp.Diff(noticed[0], noticed[1], cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("the kernel's notifications (-) and the fake's (+) differ:\n%s", diff)
			}
			if moved[0] != moved[1] {
				t.Errorf("the kernel's generation was incremented by %d, the fake's by %d", moved[0], moved[1])
			}
			have, want := content(t, kernel), content(t, fake)
			forgetCounts(want.Objects.Sets, have.Objects.Sets)
			if diff := gocmp.Diff(have, want, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("the kernel's table (-) and the fake (+) differ:\n%s", diff)
			}
		})
	}
}

// noticedBy returns the sets and elements of notifications, in the order of their names. The kernel also reports a chain whose rules
// use another one that is changed.
func noticedBy(writes []nf.Write, _ bool) (found []nf.Object) {
	for _, w := range writes {
		for _, o := range w.Objects {
			if o.Name != "pods" && (o.Kind == nf.SetObject || o.Kind == nf.ElementObject) { // an interval set
				found = append(found, o)
			}
		}
	}
	slices.SortFunc(found, func(a, b nf.Object) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Key, b.Key))
	})
	return slices.Compact(found)
}

// forgetCounts removes the numbers of elements that a kernel does not report: 6.12 and older ones.
func forgetCounts(sets, kernel []nf.Set) {
	for i := range sets {
		if i < len(kernel) && kernel[i].Count == -1 {
			sets[i].Count = -1
		}
	}
}

// generation returns the number of transactions in the network namespace of a table.
func generation(table nft.Table) (nf.Generation, error) {
	return table.(interface{ Generation() (nf.Generation, error) }).Generation()
}

func checkError(t *testing.T, table nft.Table, c conformanceCase, err error) {
	t.Helper()
	if c.want == 0 {
		if err != nil {
			t.Errorf("%T: %v", table, err)
		}
		return
	}
	if c.want == errAny {
		if err == nil {
			t.Errorf("%T: no error", table)
		}
		return
	}
	if !errors.Is(err, c.want) {
		t.Errorf("%T: error %v, want %q", table, err, c.want)
		return
	}
	if _, ok := errors.AsType[*nf.Refusal](err); c.do.batch != nil && !ok {
		t.Errorf("%T: the error names no operation: %v", table, err)
	}
}

// tableContent is what a Table returns.
type tableContent struct {
	Objects  nf.Objects
	Elements map[string][]nf.Element
	Counters []nf.Counter
	Rules    map[string][]string
}

func content(t *testing.T, table nft.Table) tableContent {
	t.Helper()
	o, err := table.Objects(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(o.Chains, func(a, b nf.Chain) int { return cmp.Compare(a.Name, b.Name) })
	for i := range o.Sets {
		if o.Sets[i].Name == "pods" {
			o.Sets[i].Count = 0 // the kernel counts both ends of an interval
		}
	}
	slices.SortFunc(o.Sets, func(a, b nf.Set) int { return cmp.Compare(a.Name, b.Name) })
	c := tableContent{Objects: o, Elements: map[string][]nf.Element{}}
	for _, s := range o.Sets {
		if s.Name == "pods" {
			continue
		}
		for e, err := range table.Elements(t.Context(), s.Name) {
			if err != nil {
				t.Fatal(err)
			}
			c.Elements[s.Name] = append(c.Elements[s.Name], e)
		}
		slices.SortFunc(c.Elements[s.Name], func(a, b nf.Element) int { return slices.Compare(a.Key, b.Key) })
	}
	if c.Counters, err = table.Counters(t.Context()); err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(c.Counters, func(a, b nf.Counter) int { return cmp.Compare(a.Name, b.Name) })
	if c.Rules, err = table.Rules(t.Context()); err != nil && (o.Exists || !errors.Is(err, unix.ENOENT)) {
		t.Fatal(err)
	}
	for _, rules := range c.Rules {
		for i, rule := range rules {
			rules[i] = strings.ReplaceAll(rule, `"`, "") // nft quotes some names
		}
	}
	return c
}

// TestConformanceIsComplete fails when a verb that is used on a kind of object has no case in which it succeeds, or none
// in which it is refused, and when a case is about a verb and object that are not listed.
func TestConformanceIsComplete(t *testing.T) {
	const both, succeeds, refused = "both", "succeeds", "refused"
	want := map[string]string{
		// `create` is `add` for what must not be there yet: its success is that of `add`.
		"add/table": succeeds, "create/table": refused, "flush/table": succeeds, "delete/table": both,
		"add/chain": succeeds, "create/chain": refused, "flush/chain": both, "delete/chain": both,
		"add/rule": both, "insert/rule": succeeds,
		"add/set": both, "create/set": refused, "flush/set": both, "delete/set": both,
		"add/map": succeeds, "create/map": refused, "flush/map": both, "delete/map": both,
		"add/counter": succeeds, "create/counter": refused, "delete/counter": both,
		"add/element": both, "create/element": refused, "delete/element": both,
		"Add/map": both, "Delete/map": both, "Replace/map": both, "Ensure/map": both,
		"Add/verdict map": both, "Delete/verdict map": succeeds, "Replace/verdict map": succeeds,
		"Add/set": both, "Delete/set": both,
		"AddChain/chain": both, "DeleteChain/chain": both, "FlushChain/chain": both, "DeleteTable/table": both, "AddRule/rule": both,
	}
	seen := map[string]map[string]bool{}
	for _, c := range conformanceCases() {
		verb, rest, _ := strings.Cut(c.name, "/")
		object, _, _ := strings.Cut(rest, "/")
		name := verb + "/" + object
		if want[name] == "" {
			t.Errorf("case %q is about a verb and object that the list lacks", c.name)
		}
		if seen[name] == nil {
			seen[name] = map[string]bool{}
		}
		seen[name][map[bool]string{true: succeeds, false: refused}[c.want == 0]] = true
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		for _, outcome := range []string{succeeds, refused} {
			if (want[name] == outcome || want[name] == both) && !seen[name][outcome] {
				t.Errorf("there is no case in which %s %s", name, outcome)
			}
		}
	}
}
