//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"sigs.k8s.io/knftables"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft"
)

// otherWrites is how often another program writes nf_tables in a second.
const otherWrites = 12

// afterwards is the longest time that is left to the proxy for what it does soon after its work, such as collecting garbage.
const afterwards = 10 * time.Second

// idleCost measures the proxy without changes, first while nobody else writes nf_tables, then while another program does.
func (b *bench) idleCost() error {
	wait := min(b.resting, afterwards)
	time.Sleep(wait)
	if err := b.idleFor("idle", time.Sleep); err != nil {
		return err
	}
	other, err := b.otherProgram()
	if err != nil {
		return err
	}
	wrote := other.write(2 * wait) // a proxy may look more closely at first
	err = b.idleFor(fmt.Sprintf("idle, others write %d times a second", otherWrites), func(d time.Duration) {
		wrote = errors.Join(wrote, other.write(d))
	})
	return errors.Join(err, wrote, other.close())
}

// idleFor adds the CPU use and the context switches of the proxy for the time that pass takes.
func (b *bench) idleFor(name string, pass func(time.Duration)) error {
	var switched int
	used, passed, err := b.process.cpuDuring(func() error {
		before, err := b.process.switches()
		if err != nil {
			return err
		}
		pass(b.resting)
		after, err := b.process.switches()
		switched = after - before
		return err
	})
	if err != nil {
		return err
	}
	b.run.add(name+", CPU", "% of a core", 100*float64(used)/float64(passed))
	b.run.add(name+", context switches", "1/s", float64(switched)/passed.Seconds())
	return nil
}

// otherProgram has a table of its own in the node's namespace.
type otherProgram struct {
	table   nft.Table
	present bool // the element
}

func (b *bench) otherProgram() (*otherProgram, error) {
	o := &otherProgram{}
	return o, b.node.Do(func() (err error) {
		if o.table, err = nft.Open(nf.IPv4, "bench-other"); err != nil {
			return err
		}
		tx := o.table.NewTransaction()
		tx.Add(&knftables.Table{})
		tx.Add(&knftables.Set{Name: "addresses", Type: "ipv4_addr"})
		return o.table.Run(context.Background(), tx)
	})
}

// write adds and deletes an element at a steady rate.
func (o *otherProgram) write(d time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	ticker := time.NewTicker(time.Second / otherWrites)
	defer ticker.Stop()
	batch, element := o.table.NewBatch(), &nf.Element{Key: []byte{192, 0, 2, 1}}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if batch.Reset(); o.present {
			batch.Delete("addresses", element.Key)
		} else {
			batch.Add("addresses", element)
		}
		if err := o.table.Commit(context.Background(), batch); err != nil {
			return err
		}
		o.present = !o.present
	}
}

// close leaves the table to the end of the namespace: deleting it would be another change.
func (o *otherProgram) close() error { return o.table.Close() }
