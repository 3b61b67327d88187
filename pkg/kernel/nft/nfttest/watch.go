package nfttest

import (
	"sync"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft"
)

// fakeProgram is the name of the program that writes a Fake, ExternalProgram that of its External, with the process id
// ExternalProcess.
const (
	fakeProgram     = "kube-proxy"
	ExternalProgram = "external"
	ExternalProcess = 4711
)

// fakeWorld is the network namespace of one or more Fakes.
type fakeWorld struct {
	mu         sync.Mutex
	generation nft.Generation
	notices    []*Notices
}

// now returns the generation.
func (w *fakeWorld) now() nft.Generation {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.generation
}

// wrote notes a transaction.
func (w *fakeWorld) wrote(write nf.Write) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.generation++; w.generation == 0 {
		w.generation = 1
	}
	write.Process = 1
	if write.Program == ExternalProgram {
		write.Process = ExternalProcess
	}
	for _, n := range w.notices {
		n.add(write)
	}
}

// Notices are the notifications of Fakes in one network namespace, as [nf.Watch] has them. They are safe for concurrent use.
type Notices struct {
	world    *fakeWorld
	table    string
	modified chan struct{}

	writes         []nf.Write
	missed, paused bool
	pausedAt       nft.Generation
}

// Notices returns the notifications, from now on, about the tables with the name of this one, in its network namespace.
func (f *Fake) Notices() *Notices {
	w := f.state.world
	w.mu.Lock()
	defer w.mu.Unlock()
	n := &Notices{world: w, table: f.name, modified: make(chan struct{}, 1)}
	w.notices = append(w.notices, n)
	return n
}

func (n *Notices) add(write nf.Write) {
	if n.paused || len(write.Objects) == 0 || write.Objects[0].Table.Name != n.table {
		return
	}
	n.writes = append(n.writes, write)
	n.Report()
}

// Lose forgets the transactions since the last call of Take, as if there had been too many.
func (n *Notices) Lose() {
	n.world.mu.Lock()
	defer n.world.mu.Unlock()
	n.writes, n.missed = nil, true
	n.Report()
}

// Modified is that of a Watch.
func (n *Notices) Modified() <-chan struct{} { return n.modified }

// Report is that of a Watch.
func (n *Notices) Report() {
	select {
	case n.modified <- struct{}{}:
	default:
	}
}

// Take is that of a Watch.
func (n *Notices) Take() (writes []nf.Write, all bool) {
	n.world.mu.Lock()
	defer n.world.mu.Unlock()
	writes, all = n.writes, !n.missed
	n.writes, n.missed = nil, false
	return writes, all
}

// Pause is that of a Watch.
func (n *Notices) Pause() error {
	n.world.mu.Lock()
	defer n.world.mu.Unlock()
	n.paused, n.pausedAt = true, n.world.generation
	return nil
}

// Resume is that of a Watch.
func (n *Notices) Resume(own int) (alone bool) {
	n.world.mu.Lock()
	defer n.world.mu.Unlock()
	n.paused = false
	return n.world.generation.Since(n.pausedAt) == uint32(own)
}

// Close is that of a Watch.
func (n *Notices) Close() error { return nil }
