package nftables_test

import (
	"testing"

	"sigs.k8s.io/knftables"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend/backendtest"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend/nftables"
)

// open opens the backend on the tables of the network namespace that it is called in.
func open() (backend.Backend, error) {
	var tables []nft.Table
	for _, family := range []knftables.Family{knftables.IPv4Family, knftables.IPv6Family} {
		table, err := nft.Open(family, "kube-proxy")
		if err != nil {
			return nil, err
		}
		tables = append(tables, table)
	}
	return nftables.New(nftables.Options{Mark: 0x4000}, tables...), nil
}

// TestKernelCases asks real packets what the cases promise.
func TestKernelCases(t *testing.T) {
	backendtest.Run(t, "../../../../test/cases", open)
}
