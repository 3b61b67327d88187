package nftables

import (
	"testing"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft"
	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// TestKernelUserNamespace is the same with the kernel, in a user namespace, where a socket cannot send more than the sysctl
// net.core.wmem_max allows.
func TestKernelUserNamespace(t *testing.T) {
	if !netns.InUserNamespace(t, "nft") {
		return
	}
	for _, family := range []nf.Family{nf.IPv4, nf.IPv6} {
		table, err := nft.Open(family, TableName)
		if err != nil {
			t.Fatal(err)
		}
		if err := table.(interface{ LimitSend(size int) error }).LimitSend(small); err != nil {
			t.Fatal(err)
		}
		follows(t, newBackend(testOptions, table), table)
	}
}
