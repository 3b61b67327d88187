//go:build linux

package app

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/component-base/version"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/config"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipvs"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/netlock"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/health"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/leftovers"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/rivals"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/serve"
)

// self describes this process to others that want the lock.
func self(mode string) netlock.Owner {
	return netlock.Owner{Mode: mode, Version: version.Get().GitVersion}
}

// turn is the lock on this network namespace, so that one proxy at a time writes its rules. While another one holds it, this
// one stands by: its sources fill the builder, so that it takes over at once when the other ends.
type turn struct {
	cfg  *config.KubeProxyConfiguration
	mode string
	// ready reports whether this proxy could take over at once.
	ready func() bool
	// begun is called once the lock is held, before anything else begins.
	begun func(ctx context.Context)

	held chan struct{} // closed once the lock is held and begun has run
	lock *netlock.Lock
}

// run takes the lock and keeps it; release gives it up. Where there is no such lock, the proxy goes on without: Services
// are worth more.
func (t *turn) run(ctx context.Context) error {
	logger := klog.FromContext(ctx)
	var waitingFor atomic.Pointer[netlock.Owner]
	standby, stop := context.WithCancel(ctx)
	defer stop()
	stopped := make(chan struct{})
	lock, err := netlock.Acquire(ctx, netlock.Name, self(t.mode), func(owner netlock.Owner) {
		logger.Info("Another kube-proxy serves this node; waiting until it ends",
			"pid", owner.PID, "mode", owner.Mode, "version", owner.Version, "since", owner.Since)
		if waitingFor.Swap(&owner) == nil {
			go func() {
				defer close(stopped)
				t.serveStandby(standby, &waitingFor)
			}()
		}
	})
	t.lock = lock
	if waitingFor.Load() != nil {
		stop()
		<-stopped // its address must be free for the health server
	}
	switch {
	case ctx.Err() != nil:
		return nil
	case err != nil:
		logger.Error(err, "Cannot lock this network namespace; make sure that no other kube-proxy runs on this node")
	case waitingFor.Load() != nil:
		logger.Info("The other kube-proxy ended; taking over")
	}
	t.begun(ctx)
	close(t.held)
	<-ctx.Done()
	return nil
}

// after is a part that begins once the lock is held.
func (t *turn) after(part func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		select {
		case <-t.held:
			return part(ctx)
		case <-ctx.Done():
			return nil
		}
	}
}

// release gives the lock up, if it is held. Nothing may be written to the kernel after that.
func (t *turn) release() error {
	if t.lock == nil {
		return nil
	}
	return t.lock.Release()
}

// serveStandby serves the health pages while the proxy waits, where their address is free: usually the proxy that is waited
// for has it, and answers for the node.
func (t *turn) serveStandby(ctx context.Context, waitingFor *atomic.Pointer[netlock.Owner]) {
	if t.cfg.HealthzBindAddress == "" {
		return
	}
	pages := &health.Standby{
		Ready:      t.ready,
		WaitingFor: func() string { return (&netlock.HeldError{Owner: *waitingFor.Load()}).Error() },
	}
	server := &serve.Server{Name: "healthz", Address: t.cfg.HealthzBindAddress, HTTP: serve.HTTP(pages.Handler(), answerTimeout), Clock: clock.RealClock{}}
	_ = server.Run(klog.NewContext(ctx, logr.Discard())) // a failure means that the other proxy has the address
}

// complete reports whether all sources are.
func (in *inputs) complete() bool {
	for _, s := range in.sources {
		select {
		case <-s.Complete():
		default:
			return false
		}
	}
	return true
}

// alone calls do while it holds the lock. It refuses where a proxy runs, which would write again what do removes.
func alone(ctx context.Context, do func() error) error {
	lock, err := netlock.Try(netlock.Name, self("cleanup"))
	var held *netlock.HeldError
	switch {
	case errors.As(err, &held):
		return fmt.Errorf("nothing is removed: %w; stop it first", err)
	case err != nil:
		klog.FromContext(ctx).Error(err, "Cannot lock this network namespace; make sure that no kube-proxy runs on this node")
		return do()
	}
	return errors.Join(do(), lock.Release())
}

// rivals looks for another kube-proxy that takes no lock. seen is called with the mode of each.
func (p *process) rivals(ctx context.Context, seen func(mode string, at time.Time)) *rivals.Watch {
	others := []rivals.Mode{{
		Name: string(config.ProxyModeIPVS), Present: func(context.Context) (bool, error) { return leftovers.Present(ipvs.Kernel{}) },
	}}
	for _, d := range dataplanes {
		if d.mode != p.chosen.mode {
			others = append(others, rivals.Mode{Name: string(d.mode), Present: d.present})
		}
	}
	return rivals.New(rivals.Config{
		Mode: string(p.chosen.mode), Others: others, Seen: seen,
		Processes: func() ([]int, error) { return netlock.Processes("kube-proxy") },
		Clock:     clock.RealClock{}, Logger: klog.FromContext(ctx),
	})
}
