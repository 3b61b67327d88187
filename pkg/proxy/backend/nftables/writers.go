package nftables

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft"
)

// watchFor is how long to subscribe to the kernel's notifications after another program wrote.
const watchFor = time.Minute

// writers knows who wrote, from the kernel's notifications. It subscribes only while other programs write, because the kernel
// also sends every element of our own writes: so the first write of another program is unknown, and the next ones are known.
type writers struct {
	tables []*watched
	// watcher is nil without a subscription, which ends at until.
	watcher nft.Watcher
	until   time.Time
	writes  []nft.Write
}

// subscribe begins a subscription or extends it. Without one no write is known.
func (w *writers) subscribe(ctx context.Context) {
	w.until = time.Now().Add(watchFor)
	if w.watcher == nil && len(w.tables) > 0 {
		if watcher, err := w.tables[0].table.Watch(ctx); err == nil {
			w.watcher = watcher
		}
	}
}

// between returns the writes to our tables after one generation and up to another; ok is false if some may be unknown.
func (w *writers) between(from, to nft.Generation) (ours []nft.Write, ok bool) {
	if w.watcher == nil || from == 0 || to == 0 {
		return nil, false
	}
	received, err := w.watcher.Writes()
	if err != nil {
		w.close()
		return nil, false
	}
	w.writes = append(w.writes, received...)
	known := uint32(0)
	for _, write := range w.writes {
		if !write.Generation.After(from) || write.Generation.After(to) {
			continue
		}
		known++
		if slices.ContainsFunc(w.tables, func(t *watched) bool { return t.writtenBy(write) }) {
			ours = append(ours, write)
		}
	}
	return ours, known == to.Since(from)
}

// forget drops the writes up to a generation, and ends the subscription if other programs have not written for long.
func (w *writers) forget(until nft.Generation) {
	if w.watcher == nil {
		return
	}
	if time.Now().After(w.until) {
		w.close()
		return
	}
	at := slices.IndexFunc(w.writes, func(write nft.Write) bool { return write.Generation == until })
	w.writes = slices.Delete(w.writes, 0, at+1)
}

// close ends the subscription.
func (w *writers) close() {
	if w.watcher != nil {
		_ = w.watcher.Close() // nothing depends on it
	}
	w.watcher, w.writes = nil, nil
	for _, t := range w.tables {
		t.writer = ""
	}
}

// named formats the program that made a transaction for a log line.
func named(write nft.Write) string {
	return fmt.Sprintf("%s (process %d)", write.Program, write.Process)
}
