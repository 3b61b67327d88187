package nft_test

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft"
	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// TestKernelUsable opens a usable table, which must not create it: also on a kernel that calls itself Linux 2.6, because an old
// number does not count. It is refused without CAP_NET_ADMIN.
func TestKernelUsable(t *testing.T) {
	netns.Enter(t, "nft")
	usable := func() error {
		tables, err := nft.OpenUsable(t.Context(), testTable, nf.IPv4, nf.IPv6)
		for _, table := range tables {
			err = errors.Join(err, table.Close())
		}
		return err
	}
	if err := usable(); err != nil {
		t.Error(err)
	}
	if list := nftProgram(t, "list", "ruleset"); list != "" {
		t.Errorf("there is now:\n%s", list)
	}

	nft.OldNumber(t)
	if err := usable(); err != nil {
		t.Errorf("with an old version number: %v", err)
	}
	// This is a setting of the thread, too.
	if err := unix.Prctl(unix.PR_CAPBSET_DROP, unix.CAP_NET_ADMIN, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	if err := usable(); err == nil || !strings.Contains(err.Error(), "Operation not permitted") || !strings.Contains(err.Error(), "CAP_NET_ADMIN is missing") {
		t.Errorf("without CAP_NET_ADMIN: %v", err)
	}
}
