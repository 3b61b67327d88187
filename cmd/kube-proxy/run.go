//go:build linux

package main

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/config"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/source"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/source/manifests"
)

// checkPeriod is the time between looks whether somebody else changed the rules. A look costs microseconds.
const checkPeriod = 250 * time.Millisecond

// run wires sources, backend, loop and servers, and proxies until ctx ends.
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
	logger := klog.FromContext(ctx)
	logger.Info("Serving", "node", name, "mode", chosen.mode)
	families := machineFamilies()
	dataplane, err := chosen.open(cfg, families)
	if err != nil {
		return err
	}
	sources, err := openSources(cfg, name, opts)
	if err != nil {
		return errors.Join(err, dataplane.Close())
	}
	loop := proxy.New(proxy.Config{
		Sources:       sources,
		Builder:       cluster.NewBuilder(name),
		Backend:       dataplane,
		Plan:          planning,
		MinSyncPeriod: cfg.MinSyncPeriod.Duration,
		CheckPeriod:   checkPeriod,
		Clock:         clock.RealClock{},
	})
	return errors.Join(together(ctx, loop.Run), dataplane.Close())
}

// openSources makes the sources that the command line asks for.
func openSources(_ *config.KubeProxyConfiguration, name string, opts runOptions) ([]source.Source, error) {
	if opts.manifests == "" {
		return nil, errors.New("no source of objects: give --manifests")
	}
	return []source.Source{manifests.New(opts.manifests, name)}, nil
}

// together runs all parts until ctx ends or one of them does, and then ends the others.
func together(ctx context.Context, parts ...func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	errs := make([]error, len(parts))
	for i, part := range parts {
		wg.Go(func() {
			errs[i] = part(ctx)
			cancel()
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}
