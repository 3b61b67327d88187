package nftables

import (
	"context"
	"testing"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend/backendtest"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// TestKernelFences bounds connections.
func TestKernelFences(t *testing.T) {
	t.Parallel()
	backendtest.Fences(t, openBoth)
}

// TestKernelFloodedNeighbour floods a Service beside another one.
func TestKernelFloodedNeighbour(t *testing.T) {
	t.Parallel()
	backendtest.FloodedNeighbour(t, openBoth)
}

func openBoth() (backend.Backend, error) {
	return Mode{testOptions}.Open(context.Background(), cluster.IPv4, cluster.IPv6)
}
