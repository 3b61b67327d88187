package iptables_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend/backendtest"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend/iptables"
)

// settings are those of the network namespace that they are used in.
type settings struct{}

func (settings) Read(name string) (string, error) {
	value, err := os.ReadFile("/proc/sys/" + name)
	return string(value[:max(0, len(value)-1)]), err
}

func (settings) Write(name, value string) error {
	return os.WriteFile("/proc/sys/"+name, []byte(value), 0)
}

// open opens the backend on the tables of the network namespace that it is called in.
func open(variant ipt.Variant) (*iptables.Backend, error) {
	var doors []ipt.Tables
	for _, family := range []ipt.Family{ipt.IPv4, ipt.IPv6} {
		door, err := ipt.Open(context.Background(), family, variant)
		if err != nil {
			return nil, fmt.Errorf("install the package iptables: %w", err)
		}
		doors = append(doors, door)
	}
	return iptables.New(iptables.Options{Mark: 0x4000}, settings{}, doors...), nil
}

// variants runs a test for both.
func variants(t *testing.T, test func(t *testing.T, variant ipt.Variant)) {
	for _, variant := range []ipt.Variant{ipt.NFT, ipt.Legacy} {
		t.Run(string(variant), func(t *testing.T) { test(t, variant) })
	}
}

// TestKernelCases asks real packets what the cases promise.
func TestKernelCases(t *testing.T) {
	variants(t, func(t *testing.T, variant ipt.Variant) {
		backendtest.RunAs(t, "../../../../test/cases", "iptables", func() (backend.Backend, error) { return open(variant) })
	})
}
