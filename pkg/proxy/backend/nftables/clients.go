package nftables

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
)

// countShare limits the cost of counting clients on kernels that do not report the sizes of maps: after reading them for t, the
// result is kept for countShare*t, so that this uses at most 2 % of a core.
const countShare = 49

// clientCounter knows how full the fullest affinity map of a family is.
type clientCounter struct {
	mu      sync.Mutex
	fullest float64
	// until is when a number that was expensive to read expires.
	until time.Time
}

// count counts the clients of a table.
func (c *clientCounter) count(ctx context.Context, table nft.Table, clients *backend.Clients) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	counters, err := table.Counters(ctx)
	if err != nil {
		return err
	}
	for _, counter := range counters {
		if counter.Name == counterFull {
			clients.Refused = counter.Packets
		}
	}
	if time.Now().Before(c.until) {
		clients.Fullest = c.fullest
		return nil
	}
	objects, err := table.Objects(ctx)
	if err != nil {
		return err
	}
	start, read := time.Now(), false
	defer func() {
		if read {
			c.until = time.Now().Add(countShare * time.Since(start))
		}
	}()
	fullest := 0.0
	for _, set := range objects.Sets {
		pool, ok := parseClients(set.Name)
		if !ok {
			continue
		}
		if set.Count < 0 {
			read = true
			if set.Count, err = size(ctx, table, set.Name); err != nil {
				return err
			}
		}
		fullest = max(fullest, float64(set.Count)/float64(pool.size()))
	}
	c.fullest, clients.Fullest = fullest, fullest
	return nil
}

// size reads a map and returns the number of its elements; 0 if there is no such map any more.
func size(ctx context.Context, table nft.Table, name string) (n int, _ error) {
	for _, err := range table.Elements(ctx, name) {
		if errors.Is(err, unix.ENOENT) {
			return 0, nil
		}
		if err != nil {
			return 0, err
		}
		n++
	}
	return n, nil
}
