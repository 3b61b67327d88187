//go:build !linux

package app

import (
	"context"
	"fmt"
	"runtime"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/config"
)

// run says that this platform has no backend. The subcommands work everywhere.
func run(_ context.Context, _ *config.KubeProxyConfiguration, _ runOptions) error {
	return fmt.Errorf("the backends of this proxy, iptables and nftables, are Linux'; on %s only its subcommands work", runtime.GOOS)
}
