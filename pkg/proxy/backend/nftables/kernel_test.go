package nftables_test

import (
	"context"
	"net"
	"testing"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend/backendtest"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend/nftables"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
	"github.com/seed-11a05479/kube-proxy/test/netns"
)

func TestMain(m *testing.M) { netns.Main(m) }

// devices returns the indexes of all interfaces.
func devices() (map[string]int, error) {
	all, err := net.Interfaces()
	indexes := map[string]int{}
	for _, i := range all {
		indexes[i.Name] = i.Index
	}
	return indexes, err
}

// open opens the backend on the tables of the current network namespace.
func open() (backend.Backend, error) {
	return nftables.Mode{Options: nftables.Options{Mark: 0x4000, Devices: devices}}.Open(context.Background(), cluster.IPv4, cluster.IPv6)
}

// TestKernelCases sends the packets of all cases.
func TestKernelCases(t *testing.T) {
	t.Parallel()
	backendtest.Run(t, "../../../../test/cases", "nftables", open)
}

// TestKernelHostileObjects makes the attacks of test/hostile.
func TestKernelHostileObjects(t *testing.T) {
	t.Parallel()
	backendtest.RunHostile(t, "../../../../test/hostile", "nftables", plan.Limits{Elements: 1_000_000}, open)
}

// TestKernelEarlyClient opens a connection before there are rules.
func TestKernelEarlyClient(t *testing.T) {
	t.Parallel()
	backendtest.EarlyClient(t, "../../../../test/cases", open)
}

// TestKernelRemoveFamily removes the rules of one family.
func TestKernelRemoveFamily(t *testing.T) {
	t.Parallel()
	backendtest.RemoveFamily(t, "../../../../test/cases", nftables.Mode{}, open)
}

// TestKernelModified checks that the backend asks for checks only if somebody wrote nf_tables.
func TestKernelModified(t *testing.T) { backendtest.Modified(t, "../../../../test/cases", open) }
