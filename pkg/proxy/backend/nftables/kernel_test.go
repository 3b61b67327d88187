package nftables_test

import (
	"testing"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend/backendtest"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend/nftables"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// open opens the backend on the tables of the network namespace that it is called in.
func open() (backend.Backend, error) {
	return nftables.Open(nftables.Options{Mark: 0x4000}, cluster.IPv4, cluster.IPv6)
}

// TestKernelCases asks real packets what the cases promise.
func TestKernelCases(t *testing.T) {
	backendtest.Run(t, "../../../../test/cases", open)
}
