package apiserver

import (
	"context"
	"math"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// Options change how a Source works. The zero value is what most want.
type Options struct {
	// TrustLists switches the guard off: every list is believed at once.
	TrustLists bool
	// OnDoubt is told of every list that the guard did not believe at once. It must not block.
	OnDoubt func(Doubt)
	// Clock is the real one but in tests.
	Clock clock.WithDelayedExecution
	// Backoff says how long to wait before a failed request is repeated; nil is 0.8 s, doubling to 30 s, with
	// as much jitter.
	Backoff *wait.Backoff
}

// Source watches an API server. It is a source.Source.
type Source struct {
	options   Options
	resources []*resource
	clients   map[schema.GroupVersion]rest.Interface
	complete  chan struct{}
	progress  *progress
}

// New makes a source of the objects that a proxy on the node of that name needs. The config's content types
// are chosen here. No connection is made yet; an error means that the config contradicts itself.
func New(config *rest.Config, nodeName string, options Options) (*Source, error) {
	if options.Clock == nil {
		options.Clock = clock.RealClock{}
	}
	if options.Backoff == nil {
		options.Backoff = defaultBackoff()
	}
	all := resources(nodeName)
	clients, err := newClients(config, all)
	if err != nil {
		return nil, err
	}
	return &Source{options: options, resources: all, clients: clients, complete: make(chan struct{}), progress: newProgress(all)}, nil
}

// Missing describes the lists that have not arrived yet, and why; "" when all have. It may be called by any goroutine.
func (s *Source) Missing() string { return s.progress.missing() }

// Complete is closed when all resources have been listed in full.
func (s *Source) Complete() <-chan struct{} { return s.complete }

// Run follows the API server until ctx ends. Whatever the server does, it goes on.
func (s *Source) Run(ctx context.Context, b *cluster.Builder) error {
	var stores []*store
	for _, r := range s.resources {
		store := newStore(ctx, r, b, &s.options)
		store.listed = func() { s.progress.listed(r.name) }
		stores = append(stores, store)
		go s.follow(ctx, store)
	}
	for _, store := range stores {
		select {
		case <-store.synced:
		case <-ctx.Done():
			return nil
		}
	}
	close(s.complete)
	// The reflectors are not waited for: one that waits before it tries again may not notice for half a
	// minute. Their stores take nothing any more.
	<-ctx.Done()
	return nil
}

// follow runs a Reflector until ctx ends. It does what Reflector.RunWithContext does but for logging every
// error: the complaints, which see every request, have told a person what matters. No resync period is set:
// it is for stores that repeat what they hold, and these hold nothing.
func (s *Source) follow(ctx context.Context, to *store) {
	from := &listWatch{
		ctx: ctx, client: s.clients[to.version], store: to,
		complaints: &complaints{resource: to.resource, progress: s.progress, logger: to.logger, clock: s.options.Clock},
	}
	backoff := s.options.Backoff
	reflector := cache.NewReflectorWithOptions(from, to.example, to, cache.ReflectorOptions{Name: to.name, Backoff: backoff})
	delay := backoff.DelayWithReset(clock.RealClock{}, backoffReset)
	_ = delay.Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		err := reflector.ListAndWatchWithContext(ctx)
		to.logger.V(4).Info("A watch ended and is begun anew", "reason", err)
		return false, nil
	})
}

// backoffReset is how long all must have gone well until a failure is the first one again.
const backoffReset = 2 * time.Minute

// defaultBackoff is that of client-go's Reflectors.
func defaultBackoff() *wait.Backoff {
	return &wait.Backoff{Duration: 800 * time.Millisecond, Cap: 30 * time.Second, Steps: math.MaxInt, Factor: 2, Jitter: 1}
}
