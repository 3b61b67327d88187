package iptables_test

import (
	"testing"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend/backendtest"
)

// TestKernelFences bounds connections.
func TestKernelFences(t *testing.T) {
	variants(t, func(t *testing.T, variant ipt.Variant) { backendtest.Fences(t, opener(variant)) })
}
