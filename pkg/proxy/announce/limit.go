package announce

import (
	"sync"

	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/lru"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy"
)

// The limits of Events about one object for one reason: whoever may change the object causes them, and every node publishes
// each. They are those of client-go's filter for the older Events API (k8s.io/client-go/tools/record).
const (
	burst = 25
	// rate is in Events a second.
	rate = 1.0 / 300
	// maxObjects is the number of objects that are remembered.
	maxObjects = 4096
)

// limiter limits the rate of Events. It is safe for concurrent use.
type limiter struct {
	mu  sync.Mutex
	all *lru.Cache
}

func newLimiter() *limiter { return &limiter{all: lru.New(maxObjects)} }

// allows reports whether an Event may be published, and counts it.
func (l *limiter) allows(e *proxy.Event) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := [...]string{e.Kind, e.Namespace, e.Name, e.Reason}
	known, ok := l.all.Get(key)
	if !ok {
		known = flowcontrol.NewTokenBucketPassiveRateLimiter(rate, burst)
		l.all.Add(key, known)
	}
	return known.(flowcontrol.PassiveRateLimiter).TryAccept() //nolint:forcetypeassert // only this method adds
}
