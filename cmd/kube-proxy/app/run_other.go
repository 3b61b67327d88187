//go:build !linux

package app

import (
	"context"
	"fmt"
	"runtime"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/config"
)

// run returns an error: this platform has no backend. The subcommands work everywhere.
func run(_ context.Context, _ *config.KubeProxyConfiguration, _ runOptions) error {
	return fmt.Errorf("all backends of this proxy are for Linux; on %s only its subcommands work", runtime.GOOS)
}
