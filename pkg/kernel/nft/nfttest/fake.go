// Package nfttest is the door of package nft on a fake nf_tables, for tests.
package nfttest

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"

	"golang.org/x/sys/unix"
	"sigs.k8s.io/knftables"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/internal/netlink"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf/nftest"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft"
)

// ErrInjected is the cause of the failures that a test requested of a Fake.
var ErrInjected = errors.New("failure injected by a test")

// The programs that write a Fake: its owner, and that of its External, with its process id.
const (
	fakeProgram     = "kube-proxy"
	ExternalProgram = "external"
	ExternalProcess = 4711
)

// Fake is the table of package nft on a [nftest.Kernel], with a stand-in for the program nft, for tests.
//
// Unlike a kernel's table it may be used by several goroutines.
type Fake struct {
	nft.Table
	*socket
	*nftest.Kernel
	name nf.TableName
}

// Stats counts the writes of a Fake, and those that failed.
type Stats struct{ Writes, Failed int }

// socket is that of the table, whose writes fail if a test requests that.
type socket struct {
	nf.Socket
	mu      sync.Mutex
	failing float64
	random  *rand.Rand
	stats   Stats
}

// New returns a Fake in a network namespace of its own, where the table does not exist yet.
func New(family nf.Family, table string) *Fake {
	return in(nftest.New(), family, table)
}

func in(kernel *nftest.Kernel, family nf.Family, table string) *Fake {
	f := &Fake{socket: &socket{Socket: kernel.Open(fakeProgram, 1)}, name: nf.TableName{Family: family, Name: table}, Kernel: kernel}
	f.Table = nft.New(nf.New(f.socket), family, table, program{f, f.socket})
	return f
}

// Beside puts a Fake that was not used yet into the network namespace of another: they have one generation number.
func (f *Fake) Beside(o *Fake) *Fake { return in(o.Kernel, f.name.Family, f.name.Name) }

// Again is part of [nft.Table].
func (f *Fake) Again() (nft.Table, error) { return f.Beside(f), nil }

// Close is part of [nft.Table]. Dump still works.
func (f *Fake) Close() error { return f.Table.Close() }

// Generation returns the number of transactions in the network namespace.
func (f *Fake) Generation() (nf.Generation, error) { return nf.New(f.Socket).Generation() }

// LimitSend makes a Commit of more than so many bytes fail from now on, and limits batches that are made later.
func (f *Fake) LimitSend(size int) { _ = f.Socket.LimitSend(size) }

// FailRandomly makes each write fail with probability p from now on; the same ones for the same seed.
func (s *socket) FailRandomly(p float64, seed uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failing, s.random = p, rand.New(rand.NewPCG(seed, seed))
}

// Stats returns the counts so far.
func (s *socket) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stats
}

// Exchange is part of [nf.Socket].
func (s *socket) Exchange(data []byte, answer func(netlink.Message) error) error {
	s.mu.Lock()
	fails := s.random != nil && s.random.Float64() < s.failing
	s.mu.Unlock()
	refused, err := false, ErrInjected
	if !fails {
		err = s.Socket.Exchange(data, func(m netlink.Message) error {
			refused = refused || m.Result().Errno != 0
			return answer(m)
		})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stats.Writes++
	if refused || err != nil {
		s.stats.Failed++
	}
	return err
}

// Refuse makes the additions of elements and chains fail for which the function returns an error number: see [nftest.Kernel.Refuse].
func (f *Fake) Refuse(anonymous bool, refuse func(object string, key []byte) unix.Errno) {
	f.Kernel.Refuse(f.name, anonymous, refuse)
}

// Watch returns a watch of the tables with the name of this one in its network namespace.
func (f *Fake) Watch() *nf.Watch {
	return f.Kernel.Watch(nf.TableName{Family: nf.IPv4, Name: f.name.Name}, nf.TableName{Family: nf.IPv6, Name: f.name.Name})
}

// Count adds to an element's counter, as packets do. It panics if the element does not exist or has no counter.
func (f *Fake) Count(set string, key []byte, packets, octets uint64) {
	f.Kernel.Count(f.name, set, key, packets, octets)
}

// Learn writes an element into a dynamic map, as a packet does in an [nft.Update]: see [nftest.Kernel.Learn].
func (f *Fake) Learn(set string, e *nf.Element) { f.Kernel.Learn(f.name, set, e.Key, e.Value) }

// External returns a second process that changes the table. FailRandomly does not apply to its writes.
func (f *Fake) External() *External {
	s := f.Open(ExternalProgram, ExternalProcess)
	return &External{nft.New(nf.New(s), f.name.Family, f.name.Name, program{f, s}), f}
}

// External is another process that changes a Fake's table.
type External struct {
	table nft.Table
	fake  *Fake
}

// Run makes a change of the skeleton, or of elements, from text.
func (e *External) Run(tx *nft.Transaction) error { return e.table.Run(context.Background(), tx) }

// Commit makes a change of elements.
func (e *External) Commit(b *nf.Batch) error { return e.table.Commit(context.Background(), b) }

// DeleteElement deletes an element.
func (e *External) DeleteElement(set string, key []byte) error {
	b := e.table.NewBatch()
	b.Delete(set, key)
	return e.Commit(b)
}

// AddElement adds an element.
func (e *External) AddElement(set string, element *nf.Element) error {
	b := e.table.NewBatch()
	b.Add(set, element)
	return e.Commit(b)
}

// AddRule appends a rule to a chain.
func (e *External) AddRule(chain, rule string) error {
	tx := e.table.NewTransaction()
	tx.Add(&knftables.Rule{Chain: chain, Rule: rule})
	return e.Run(tx)
}

// FlushRuleset deletes the table and its content, as `nft flush ruleset` does.
func (e *External) FlushRuleset() error {
	tx := e.table.NewTransaction()
	tx.Add(&knftables.Table{})
	tx.Delete(&knftables.Table{})
	return e.Run(tx)
}

// Elsewhere makes a change in another table, which only increments the generation.
func (e *External) Elsewhere() {
	e.fake.Notify(ExternalProgram, ExternalProcess, nf.TableName{})
}
