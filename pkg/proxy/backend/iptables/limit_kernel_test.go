package iptables

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
	"github.com/seed-11a05479/kube-proxy/test/clusters"
	"github.com/seed-11a05479/kube-proxy/test/laws"
	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// TestKernelUserNamespace programs more than can be sent at once in a user namespace, where a socket takes no more than the sysctl
// net.core.wmem_max allows: in smaller transactions, each of whole Services. A Service that is too large by itself is refused.
func TestKernelUserNamespace(t *testing.T) {
	if !netns.InUserNamespace(t, "iptables-nft") {
		return
	}
	for _, family := range []ipt.Family{ipt.IPv4, ipt.IPv6} {
		kernel, err := ipt.Open(t.Context(), family, ipt.NFT)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = kernel.Close() })
		if err := kernel.(interface{ LimitSend(size int) error }).LimitSend(64 << 10); err != nil {
			t.Fatal(err)
		}
		door, large := &hooked{Tables: kernel}, 0
		door.around = func(_, _ string, do func() error) error {
			err := do()
			if refused, ok := errors.AsType[*ipt.RestoreError](err); ok && strings.Contains(refused.Output, "can be sent at once") {
				large++
			}
			return err
		}
		b := newBackend(t, settings(nil), door)
		many := plan.Compute(clusters.WithExternalIPs(300), &plan.Options{}, nil)
		for _, p := range []*plan.Plan{many, clusters.NewSized(300, 5).Plan(), clusters.NewSized(0, 0).Plan(), many} {
			sync(t, b, p)
			holds(t, b, p)
			check(t, b, 0)
		}
		if large == 0 {
			t.Error("no transaction was too large")
		}
		if family == ipt.IPv6 {
			continue // the cluster has no such endpoints
		}
		c := clusters.NewSized(300, 1)
		c.Set(7, 255)
		err = laws.Err(b.Sync(t.Context(), c.Plan()))
		refused, ok := errors.AsType[*backend.RefusedError](err)
		if !ok || !slices.ContainsFunc(refused.Ports, func(p plan.Port) bool { return p.Service == clusters.NameAt(7) }) || !strings.Contains(err.Error(), "wmem_max") {
			t.Errorf("one Service has more than can be sent at once: %v", err)
		}
	}
}
