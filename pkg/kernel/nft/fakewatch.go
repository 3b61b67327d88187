package nft

import "sync"

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
	generation Generation
	watchers   map[*fakeWatcher]bool
}

// now returns the generation.
func (w *fakeWorld) now() Generation {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.generation
}

// wrote notes a transaction.
func (w *fakeWorld) wrote(write Write) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.generation++; w.generation == 0 {
		w.generation = 1
	}
	write.Generation, write.Process = w.generation, 1
	if write.Program == ExternalProgram {
		write.Process = ExternalProcess
	}
	for watcher := range w.watchers {
		watcher.writes = append(watcher.writes, write)
	}
}

func (w *fakeWorld) watch() *fakeWatcher {
	w.mu.Lock()
	defer w.mu.Unlock()
	watcher := &fakeWatcher{world: w}
	if w.watchers == nil {
		w.watchers = map[*fakeWatcher]bool{}
	}
	w.watchers[watcher] = true
	return watcher
}

// fakeWatcher is the Watcher of Fakes.
type fakeWatcher struct {
	world  *fakeWorld
	writes []Write
}

// Writes is part of [Watcher].
func (w *fakeWatcher) Writes() ([]Write, error) {
	w.world.mu.Lock()
	defer w.world.mu.Unlock()
	writes := w.writes
	w.writes = nil
	return writes, nil
}

// Close is part of [Watcher].
func (w *fakeWatcher) Close() error {
	w.world.mu.Lock()
	defer w.world.mu.Unlock()
	delete(w.world.watchers, w)
	return nil
}
