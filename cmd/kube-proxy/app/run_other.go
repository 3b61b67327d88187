//go:build !linux

package app

import (
	"context"
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/config"
	"github.com/seed-11a05479/kube-proxy/pkg/check"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft/trace"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/source"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/source/manifests"
)

// run returns an error: this platform has no backend. The subcommands work everywhere.
func run(_ context.Context, _ *config.KubeProxyConfiguration, _ runOptions) error {
	return fmt.Errorf("all backends of this proxy are for Linux; on %s only its subcommands work", runtime.GOOS)
}

// startable leaves the answer to run.
func (*loaded) startable() error { return nil }

// newChecker returns an error: the checks read Linux.
func newChecker(*loaded, bool) (*check.Checker, error) {
	return nil, fmt.Errorf("\"kube-proxy check\" runs on the node, which is Linux; this is %s", runtime.GOOS)
}

// newRehearseCommand builds the command that newChecker would need.
func newRehearseCommand() *cobra.Command { return &cobra.Command{Use: "rehearse", Hidden: true} }

// renderers returns none: this platform has no backend.
func renderers(*config.KubeProxyConfiguration, backend.CounterLimits) map[string]backend.Renderer {
	return nil
}

// thisMachine returns nothing: only Linux is read.
func thisMachine() (manifests.Options, []source.Source) { return manifests.Options{}, nil }

// openTracer returns an error: only Linux has packets of Services.
func openTracer(context.Context, trace.Filter) (trace.Tracer, error) {
	return nil, fmt.Errorf("\"kube-proxy trace\" runs on the node, which is Linux; this is %s", runtime.GOOS)
}

// traceable leaves the answer to openTracer.
func traceable(context.Context, string) error { return nil }
