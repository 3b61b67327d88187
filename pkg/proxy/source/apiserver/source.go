package apiserver

import (
	"context"
	"math"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/seed-11a05479/kube-proxy/pkg/apiclient"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// Options configure a Source. The zero value has sensible defaults.
type Options struct {
	// TrustLists turns off the guard: every list is applied at once.
	TrustLists bool
	// DropManagedFields asks the server to leave metadata.managedFields out of its answers.
	DropManagedFields bool
	// LogVersion logs that the server's version is not supported, after the first lists.
	LogVersion bool
	// OnHeld is called for every list whose removals the guard holds back. It must not block.
	OnHeld func()
	// OnFailure is called when a resource can no longer be listed or watched, when the cause changes, and, with an empty
	// cause, when it can be again. The causes are unreachable, untrusted, unauthorized, forbidden, missing, busy,
	// failing, oversized and slow. It must not block.
	OnFailure func(resource, cause string)

	// Tests replace these.
	clock   clock.WithDelayedExecution
	backoff *wait.Backoff
}

// Source watches an API server. It is a source.Source.
type Source struct {
	options   Options
	resources []*resource
	clients   apiclient.Clients
	complete  chan struct{}
	failures  *failures
}

// New returns a source of the objects that a proxy on the node of that name needs. It sets the config's content
// types. It makes no connection; an error means that the config is invalid.
func New(config *rest.Config, nodeName string, options Options) (*Source, error) {
	if options.clock == nil {
		options.clock = clock.RealClock{}
	}
	if options.backoff == nil {
		options.backoff = defaultBackoff()
	}
	all := resources(nodeName)
	clients, err := newClients(config, all, options.DropManagedFields)
	if err != nil {
		return nil, err
	}
	return &Source{options: options, resources: all, clients: clients, complete: make(chan struct{}), failures: newFailures(all, &options)}, nil
}

// Missing describes the lists that have not arrived yet, with the reasons, "" when all have; and what the user can do about
// the first one that failed. It is safe for concurrent use.
func (s *Source) Missing() (what, hint string) { return s.failures.missing() }

// Complete returns a channel that is closed when all resources have been listed completely.
func (s *Source) Complete() <-chan struct{} { return s.complete }

// Run watches the API server until ctx ends. It retries after every failure.
func (s *Source) Run(ctx context.Context, b *cluster.Builder) error {
	var stores []*store
	s.failures.logger = klog.FromContext(ctx)
	for _, r := range s.resources {
		store := newStore(ctx, r, b, &s.options)
		store.listed = func() { s.failures.listed(r.Name) }
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
	if s.options.LogVersion {
		s.logVersion(ctx)
	}
	// Do not wait for the reflectors: one that waits before a retry may take ten seconds to stop. Their stores
	// ignore everything now.
	<-ctx.Done()
	return nil
}

// follow runs a Reflector until ctx ends, like Reflector.RunWithContext, but leaves the logging of errors to
// failures. It sets no resync period: stores that contain only names have nothing to repeat.
func (s *Source) follow(ctx context.Context, to *store) {
	from := &listWatch{ctx: ctx, client: s.clients[to.Version], store: to, failures: s.failures}
	backoff := s.options.backoff
	reflector := cache.NewReflectorWithOptions(from, to.Example, to, cache.ReflectorOptions{Name: to.Name, Backoff: backoff})
	delay := backoff.DelayWithReset(clock.RealClock{}, backoffReset)
	_ = delay.Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		err := reflector.ListAndWatchWithContext(ctx)
		to.logger.V(4).Info("Watch ended; restarting it", "reason", err)
		return false, nil
	})
}

// backoffReset is the time without failures after which the backoff restarts.
const backoffReset = 2 * time.Minute

// defaultBackoff returns the backoff: 0.8 s, doubling to 5 s, with as much jitter. That of client-go's Reflectors goes up to 30 s,
// so that a server would have been back for up to a minute. While it is away, 5,000 nodes send 2,700 requests a second, four each in
// 5 to 10 s.
func defaultBackoff() *wait.Backoff {
	return &wait.Backoff{Duration: 800 * time.Millisecond, Cap: 5 * time.Second, Steps: math.MaxInt, Factor: 2, Jitter: 1}
}
