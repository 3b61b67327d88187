package nftables

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"sigs.k8s.io/knftables"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft/nfttest"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
	"github.com/seed-11a05479/kube-proxy/test/clusters"
	"github.com/seed-11a05479/kube-proxy/test/laws"
)

// crowd is other programs that write before and after each of our operations, at random, some of which fail, as long as it is busy.
type crowd struct {
	mu     sync.Mutex
	random *rand.Rand
	busy   bool
	b      *Backend
}

// meet lets a table be written, sometimes, and returns an error, more rarely.
func (c *crowd) meet(f *nfttest.Fake) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.busy || c.random.IntN(12) > 0 {
		return nil
	}
	rows := newFamily(testOptions, f).schema.sets
	set := rows[c.random.IntN(len(rows))]
	var elements []nf.Element
	for e, err := range f.Elements(context.Background(), set.name) {
		if err == nil {
			elements = append(elements, e)
		}
	}
	tx, by := f.NewTransaction(), f.External()
	switch c.random.IntN(9) {
	case 0:
		return nfttest.ErrInjected
	case 1:
		lose(c.b)
	case 2:
		by.Elsewhere()
	case 3:
		_ = by.AddRule("nat-prerouting", "accept") // there may be no such chain, as below
	case 4:
		if c.random.IntN(10) == 0 {
			_ = by.FlushRuleset()
		}
	case 5:
		if set.isMap() {
			tx.Flush(&knftables.Map{Name: set.name})
		} else {
			tx.Flush(&knftables.Set{Name: set.name})
		}
		_ = by.Run(tx)
	default:
		if len(elements) == 0 {
			return nil
		}
		one, other := elements[c.random.IntN(len(elements))], elements[c.random.IntN(len(elements))]
		if c.random.IntN(3) > 0 {
			_ = by.DeleteElement(set.name, one.Key)
		}
		if c.random.IntN(2) > 0 {
			one.Key = append([]byte{one.Key[0] ^ 0x60}, one.Key[1:]...)
		}
		_ = by.AddElement(set.name, &nf.Element{Key: one.Key, Value: other.Value, Chain: other.Chain, Comment: one.Comment})
	}
	return nil
}

// be makes the crowd busy, or not.
func (c *crowd) be(busy bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.busy = busy
}

// around does an operation of a table in the crowd.
func (c *crowd) around(f *nfttest.Fake) func(string, func() error) error {
	return func(_ string, do func() error) error {
		err := c.meet(f)
		if err == nil {
			err = do()
		}
		if after := c.meet(f); err == nil {
			err = after // the operation took effect
		}
		return err
	}
}

// TestTamperingAtAnyTime has other programs write our tables at any moment of Syncs and Checks, some of which fail, while the cluster
// changes and the process is started again. When that ends, the tables are soon right, and nothing that others wrote was taken
// for our own: a new process finds nothing to write.
func TestTamperingAtAnyTime(t *testing.T) {
	for seed := range laws.Thorough[uint64](4, 40) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			w := clusters.NewRandom(seed, 8)
			_, fakes := fakes()
			c := &crowd{random: rand.New(rand.NewPCG(seed, 1))}
			tables := []nft.Table{&hooked{Fake: fakes[0], around: c.around(fakes[0])}, &hooked{Fake: fakes[1], around: c.around(fakes[1])}}
			start := func() {
				c.mu.Lock()
				defer c.mu.Unlock()
				c.b = newBackend(testOptions, tables...)
			}
			start()
			var p *plan.Plan
			for step := range 20 {
				p = w.Step()
				c.be(step%5 > 0) // so that the rules are known, sometimes
				for range 1 + w.IntN(2) {
					c.b.Sync(t.Context(), p)
					_, _ = c.b.Check(t.Context())
				}
				if w.IntN(3) > 0 {
					awaitAudit(t, c.b)
				}
				if w.IntN(10) == 0 {
					_ = c.b.Keeper.Close() // but the tables stay open
					start()
				}
			}
			awaitAudit(t, c.b)
			c.be(false)
			rest(t, c.b, p)
			holds(t, c.b, p)
			_ = c.b.Keeper.Close()
			if elements, rules := mustSync(t, newBackend(testOptions, tables...), p); elements+rules > 0 {
				t.Errorf("a new process writes %d elements and %d rules", elements, rules)
			}
		})
	}
}

// rest checks and syncs until nothing is found and nothing has to follow.
func rest(t *testing.T, b *Backend, p *plan.Plan) {
	t.Helper()
	for range 10 {
		drifts, _ := b.Check(t.Context())
		audits := false
		for _, f := range b.families {
			audits = audits || f.audit != nil
		}
		awaitAudit(t, b)
		done := len(drifts) == 0 && !audits
		for _, result := range b.Sync(t.Context(), p) {
			done = done && result.Err == nil && result.Again == 0 && result.Elements+result.Rules == 0
		}
		if done {
			return
		}
	}
	t.Fatal("it does not come to rest")
}
