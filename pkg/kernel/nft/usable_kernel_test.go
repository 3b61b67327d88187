package nft

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"sigs.k8s.io/knftables"

	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// TestKernelUsable opens a usable table, which must not create it: also on a kernel that calls itself Linux 2.6, because the
// kernel's version number does not count. It is refused without CAP_NET_ADMIN.
func TestKernelUsable(t *testing.T) {
	netns.Enter(t, "nft")
	usable := func() error {
		tables, err := OpenUsable(t.Context(), testTable, knftables.IPv4Family, knftables.IPv6Family)
		for _, table := range tables {
			err = errors.Join(err, table.Close())
		}
		return err
	}
	if err := usable(); err != nil {
		t.Error(err)
	}
	if list := nft(t, "list", "ruleset"); list != "" {
		t.Errorf("there is now:\n%s", list)
	}

	// Both are settings of the thread, which ends with the test.
	const uname26 = 0x0020000 // UNAME26 of linux/personality.h
	if _, _, errno := unix.Syscall(unix.SYS_PERSONALITY, uname26, 0, 0); errno != 0 {
		t.Fatal(errno)
	}
	if err := usable(); err != nil {
		t.Errorf("with an old version number: %v", err)
	}
	if err := unix.Prctl(unix.PR_CAPBSET_DROP, unix.CAP_NET_ADMIN, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	if err := usable(); err == nil || !strings.Contains(err.Error(), "Operation not permitted: CAP_NET_ADMIN is missing") {
		t.Errorf("without CAP_NET_ADMIN: %v", err)
	}
}
