//go:build linux

package cli

import (
	"context"
	"errors"
	"time"

	"github.com/seed-11a05479/kube-proxy/cmd/kube-proxy/app"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft/trace"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
)

// openTracer begins a trace. It waits a second for another one to end: a trace of the proxy's canary takes half of one.
func openTracer(ctx context.Context, f trace.Filter) (trace.Tracer, error) {
	for until := time.Now().Add(time.Second); ; {
		tracer, err := trace.Open(ctx, f)
		if !errors.Is(err, trace.ErrRunning) || time.Now().After(until) {
			return tracer, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// traceable returns an error if the kernel cannot report what the rules of a proxy mode do. An empty mode is not known: then it is
// any that has rules here.
func traceable(ctx context.Context, name string) error {
	for _, m := range app.Modes(app.DefaultConfig(), backend.CounterLimits{}) {
		mode, ok := m.Remover.(backend.Mode)
		if !ok || name != "" && name != m.Name {
			continue
		}
		if name == "" {
			if present, err := m.Present(ctx); err != nil || !present {
				continue // what cannot be read does not prevent a trace
			}
		}
		if err := mode.Untraceable(ctx); err != nil {
			return err
		}
	}
	return nil
}
