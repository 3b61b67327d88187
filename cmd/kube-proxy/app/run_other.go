//go:build !linux

package app

import (
	"context"
	"fmt"
	"runtime"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/config"
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
func (*Loaded) startable() error { return nil }

// Renderers returns none: this platform has no backend.
func Renderers(*config.KubeProxyConfiguration, backend.CounterLimits) map[string]backend.Renderer {
	return nil
}

// ThisMachine returns nothing: only Linux is read.
func ThisMachine() (manifests.Options, []source.Source) { return manifests.Options{}, nil }

// WhyNotForwarded knows nothing.
func WhyNotForwarded(*trace.Headers) string { return "" }
