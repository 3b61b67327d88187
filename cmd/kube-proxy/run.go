//go:build linux

package main

import (
	"context"
	"errors"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/config"
)

// run is where the sources, the backend, the loop and the servers are wired.
func run(_ context.Context, _ *config.KubeProxyConfiguration, _ runOptions) error {
	return errors.New("the proxy is not wired yet")
}
