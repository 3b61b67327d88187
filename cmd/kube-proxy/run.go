//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/config"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/externalips"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/health"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/metrics"
)

// checkPeriod is the time between looks whether somebody else changed the rules. A look costs microseconds.
const checkPeriod = 250 * time.Millisecond

// run wires sources, backend, loop, observers and servers, and proxies until ctx ends.
func run(ctx context.Context, cfg *config.KubeProxyConfiguration, opts runOptions) error {
	if opts.cleanup {
		return cleanup(ctx, cfg)
	}
	chosen, err := chooseDataplane(cfg.Mode)
	if err != nil {
		return err
	}
	name, err := nodeName(cfg.HostnameOverride, os.Hostname)
	if err != nil {
		return err
	}
	planning, err := planOptions(cfg, opts.gates, chosen.nodePorts)
	if err != nil {
		return err
	}
	families := machineFamilies()
	klog.FromContext(ctx).Info("Serving", "node", name, "mode", chosen.mode, "families", fmt.Sprint(string(families)))

	builder := cluster.NewBuilder(name)
	measured := metrics.New(metrics.Config{
		Families: families, Start: time.Now(), Snapshot: builder.Snapshot,
		SyncFailures: chosen.syncFailures, CleanupFailures: chosen.cleanupFailures,
	}, legacyregistry.MustRegister)
	in, err := openInputs(ctx, cfg, name, opts, measured.RelistHeld)
	if err != nil {
		return err
	}
	checker := health.NewChecker(health.Config{
		Families: families, SyncPeriod: cfg.SyncPeriod.Duration, Clock: clock.RealClock{},
		HealthzAnswered: measured.Healthz, LivezAnswered: measured.Livez,
	})
	services := health.NewServices(health.ServicesConfig{
		AllAddresses: len(cfg.NodePortAddresses) == 0, Healthy: checker.Healthy,
		Recorder: in.recorder, Clock: clock.RealClock{},
	})
	unacknowledged := externalips.New(externalips.Config{Recorder: in.recorder, Counted: measured.ExternalIPs, Logger: klog.FromContext(ctx)})
	dataplane, err := chosen.open(cfg, families)
	if err != nil {
		return err
	}
	loop := proxy.New(proxy.Config{
		Sources: in.sources, Builder: builder, Backend: dataplane, Plan: planning,
		Observers:     []proxy.Observer{checker, services, measured, unacknowledged},
		MinSyncPeriod: cfg.MinSyncPeriod.Duration, CheckPeriod: checkPeriod, Clock: clock.RealClock{},
	})
	serving := &servers{cfg: cfg, opts: opts, node: name, mode: chosen.mode, recorder: in.recorder}
	parts := []func(context.Context) error{in.publish, loop.Run, services.Run, serving.health(checker.Handler())}
	pages, err := serving.metrics()
	if err != nil {
		return errors.Join(err, dataplane.Close())
	}
	parts = append(parts, pages)
	if opts.configFile != nil {
		parts = append(parts, func(ctx context.Context) error { return followConfig(ctx, opts.configFile, in.recorder, name) })
	}
	return errors.Join(together(ctx, parts...), dataplane.Close())
}

// followConfig returns, and so ends the process in good order, when the configuration file has a new meaning.
func followConfig(ctx context.Context, file *configWatch, events proxy.Recorder, node string) error {
	changed := file.Wait(ctx, func(err error) {
		events.Event(proxy.Event{
			Kind: "Node", Name: node, Warning: true,
			Reason: "InvalidConfiguration", Action: "ReadConfiguration",
			Message: "The changed configuration file is invalid and not used: " + err.Error(),
		})
	})
	if changed {
		klog.FromContext(ctx).Info("The configuration file has changed; ending, to be started with it")
	}
	return nil
}

// together runs all parts until ctx ends or one of them does, and then ends the others.
func together(ctx context.Context, parts ...func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	errs := make([]error, len(parts))
	for i, part := range parts {
		wg.Go(func() {
			defer cancel()
			errs[i] = part(ctx)
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}
