//go:build linux

package app

import (
	"context"
	"fmt"
	"os"

	"k8s.io/klog/v2"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/config"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/node"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/source"
)

// begun is a source that began before the loop did.
type begun struct {
	source.Source
	ended chan error
}

func begin(ctx context.Context, s source.Source, b *cluster.Builder) *begun {
	e := &begun{Source: s, ended: make(chan error, 1)}
	go func() { e.ended <- s.Run(ctx, b) }()
	return e
}

// Run waits until the source ends.
func (e *begun) Run(ctx context.Context, _ *cluster.Builder) error {
	select {
	case err := <-e.ended:
		return err
	case <-ctx.Done():
		return nil
	}
}

// completed waits until the source is complete, or has failed.
func (e *begun) completed(ctx context.Context) error {
	select {
	case <-e.Complete():
		return nil
	case err := <-e.ended:
		e.ended <- err // for Run
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// identify begins all sources, and waits until they tell who this node is. Without an API server it is whoever the
// manifests say, if they do.
func (in *inputs) identify(ctx context.Context, b *cluster.Builder, needPodCIDRs bool) (node.Identity, error) {
	all := make([]*begun, len(in.sources))
	for i, s := range in.sources {
		all[i] = begin(ctx, s, b)
		in.sources[i] = all[i]
	}
	if !in.standalone {
		return node.Await(ctx, b.Snapshot, needPodCIDRs)
	}
	for _, s := range all {
		if err := s.completed(ctx); err != nil {
			return node.Identity{}, err
		}
	}
	return node.Of(b.Snapshot().Node, needPodCIDRs), nil
}

// chooseFamilies decides which families are served, and tells what of the configuration does not fit them.
func chooseFamilies(ctx context.Context, cfg *config.KubeProxyConfiguration, opts runOptions, identity node.Identity) ([]cluster.Family, error) {
	logger := klog.FromContext(ctx)
	families, err := servedFamilies(cfg.IPFamilyPolicy, identity.Primary(), machineFamilies(os.DirFS("/proc")))
	if err != nil {
		return nil, err
	}
	doubtful, fatal, err := checkFamilies(cfg, identity, families)
	if err != nil {
		return nil, err
	}
	if err := opts.check(fatal); err != nil {
		return nil, err
	}
	if err := opts.check(doubtful); err != nil {
		logger.Info("The configuration does not fit the address families of this node; set configHardFail to make this fatal", "warning", err.Error())
	}
	logger.Info("Serving", "node", identity.Name, "addresses", identity.Addresses, "families", fmt.Sprintf("%v", families))
	return families, nil
}
