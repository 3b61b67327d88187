package inspect

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/status/v1alpha1"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/source"
	"github.com/seed-11a05479/kube-proxy/pkg/status"
)

// Local is a Reader of objects where no proxy runs.
type Local struct {
	state *status.State
}

var _ Reader = (*Local)(nil)

// Load reads all objects of the sources once and computes the plan for them, as a proxy on the builder's Node would.
// The machine's addresses are taken to be those of the Node.
func Load(ctx context.Context, builder *cluster.Builder, opts *plan.Options, rules status.Rules, sources ...source.Source) (*Local, error) {
	parent := ctx
	ctx, cancel := context.WithCancel(parent)
	ended := make(chan error, len(sources))
	var running sync.WaitGroup
	for _, s := range sources {
		running.Go(func() { ended <- s.Run(ctx, builder) })
	}
	defer running.Wait()
	defer cancel()
	for _, s := range sources {
		select {
		case <-s.Complete():
		case err := <-ended:
			if err == nil {
				err = context.Cause(parent)
			}
			return nil, fmt.Errorf("read the objects: %w", err)
		}
	}
	if len(builder.Snapshot().Node.Interfaces) == 0 {
		addrs := builder.Snapshot().Node.Addresses
		if err := builder.Update(func(u *cluster.Update) { u.SetInterfaces(addrs) }); err != nil {
			return nil, err
		}
	}
	var info v1alpha1.Info
	for _, s := range sources {
		if files, ok := s.(interface{ Errors() []string }); ok { // of manifests
			for _, message := range files.Errors() {
				info.Problems = append(info.Problems, v1alpha1.Problem{Reason: v1alpha1.ReasonInvalidManifest, Message: message})
			}
		}
	}
	snapshot := builder.Snapshot()
	return &Local{state: &status.State{Info: info, Snapshot: snapshot, Plan: plan.Compute(snapshot, opts, nil), Unowned: builder.Unowned, Rules: rules, Now: time.Now()}}, nil
}

// Info is part of [Reader].
func (l *Local) Info(context.Context) (*v1alpha1.Info, error) { return l.state.Describe(), nil }

// Services is part of [Reader]. There are no counters.
func (l *Local) Services(_ context.Context, f status.Filter, _ bool) (*v1alpha1.ServiceList, error) {
	list := l.state.List(f, nil, "")
	for service := range l.state.Services(f, nil) {
		list.Items = append(list.Items, *service)
	}
	return list, nil
}

// Service is part of [Reader].
func (l *Local) Service(_ context.Context, name cluster.ServiceName) (*v1alpha1.Service, error) {
	if service := l.state.Service(name, nil); service != nil {
		return service, nil
	}
	return nil, errors.New(l.state.Missing(name))
}

// Explain is part of [Reader].
func (l *Local) Explain(_ context.Context, of status.Question) (*v1alpha1.Explanation, error) {
	return l.state.Explain(of)
}

// Ruleset is part of [Reader].
func (l *Local) Ruleset(_ context.Context, mode string) (*v1alpha1.Ruleset, error) {
	return l.state.Ruleset(mode)
}

// Compare is part of [Reader].
func (l *Local) Compare(ctx context.Context, mode string) (*v1alpha1.Comparison, error) {
	return l.state.Compare(ctx, mode)
}

// Repairs is part of [Reader]. There are none.
func (l *Local) Repairs(context.Context) (*v1alpha1.RepairList, error) {
	return &v1alpha1.RepairList{TypeMeta: v1alpha1.Meta(v1alpha1.KindRepairList), Items: []v1alpha1.Repair{}}, nil
}
