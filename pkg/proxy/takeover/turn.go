//go:build linux

package takeover

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"k8s.io/klog/v2"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/netlock"
)

// The reasons to wait, in the words of a metric's label. The second one holds in addition, for an alert: nobody serves the node.
const (
	OtherProxy           = "other_proxy"
	OtherProxyNotServing = "other_proxy_not_serving"
)

// TurnConfig configures a Turn.
type TurnConfig struct {
	// Owner describes this process to others that want the lock.
	Owner netlock.Owner
	// Serving reports to them whether this process serves.
	Serving func() bool
	// Serve answers HTTP requests while this proxy waits, until ctx ends. holder returns the other proxy. Run does not go on before
	// Serve returns, so that its addresses are free.
	Serve func(ctx context.Context, holder func() netlock.Owner)
	// Waiting is called for each of the reasons above when what this proxy waits for changes.
	Waiting func(reason string, waiting bool)
	// Begin is called once when the lock is held, before everything that waits for Held.
	Begin func(ctx context.Context)
}

// Turn is the lock on this network namespace.
type Turn struct {
	config TurnConfig
	held   chan struct{}
	lock   *netlock.Lock // written by Run
}

// NewTurn returns a Turn that does not hold the lock yet.
func NewTurn(config TurnConfig) *Turn { return &Turn{config: config, held: make(chan struct{})} }

// Held returns a channel that is closed when the lock is held and Begin has returned.
func (t *Turn) Held() <-chan struct{} { return t.held }

// Run waits for the lock, and returns nil when ctx ends. It keeps the lock: see [Turn.Release]. If there can be no lock, the
// proxy starts without one, because serving Services matters more.
func (t *Turn) Run(ctx context.Context) error {
	logger := klog.FromContext(ctx)
	var holder atomic.Pointer[netlock.Owner]
	waiting, stop := context.WithCancel(ctx)
	defer stop()
	stopped := make(chan struct{})
	t.waits(false, false)
	lock, err := netlock.Acquire(ctx, netlock.Request{Self: t.config.Owner, Serving: t.config.Serving, Waiting: func(owner netlock.Owner) {
		if owner.Serving {
			logger.Info("Another kube-proxy serves this node; waiting until it ends",
				"pid", owner.PID, "mode", owner.Mode, "version", owner.Version, "since", owner.Since)
		} else {
			logger.Info("Another kube-proxy holds this node and does not serve it; waiting until it ends", "cause", (&netlock.HeldError{Owner: owner}).Error())
		}
		t.waits(true, !owner.Serving)
		if holder.Swap(&owner) == nil {
			go func() {
				defer close(stopped)
				t.config.Serve(waiting, func() netlock.Owner { return *holder.Load() })
			}()
		}
	}})
	t.lock = lock
	if holder.Load() != nil {
		stop()
		<-stopped
	}
	t.waits(false, false)
	switch {
	case ctx.Err() != nil:
		return nil
	case err != nil:
		logger.Error(err, "Cannot lock this network namespace; make sure that no other kube-proxy runs on this node")
	case holder.Load() != nil:
		logger.Info("The other kube-proxy ended; taking over")
	}
	t.config.Begin(ctx)
	close(t.held)
	<-ctx.Done()
	return nil
}

// waits updates the metric of both reasons.
func (t *Turn) waits(forOther, notServing bool) {
	t.config.Waiting(OtherProxy, forOther)
	t.config.Waiting(OtherProxyNotServing, notServing)
}

// After returns a function that calls part when the lock is held.
func (t *Turn) After(part func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		select {
		case <-t.held:
			return part(ctx)
		case <-ctx.Done():
			return nil
		}
	}
}

// Release releases the lock if it is held, after Run has returned. Nothing may be written to the kernel after that.
func (t *Turn) Release() error {
	if t.lock == nil {
		return nil
	}
	return t.lock.Release()
}

// Alone calls do while it holds the lock. If a proxy holds it, do is not called and the error is a *netlock.HeldError: that
// proxy would write again what do removes.
func Alone(ctx context.Context, owner netlock.Owner, do func() error) error {
	held, err := netlock.Try(owner)
	var other *netlock.HeldError
	switch {
	case errors.As(err, &other):
		return fmt.Errorf("nothing is removed: %w; stop it first", err)
	case err != nil:
		klog.FromContext(ctx).Error(err, "Cannot lock this network namespace; make sure that no kube-proxy runs on this node")
		return do()
	}
	return errors.Join(do(), held.Release())
}
