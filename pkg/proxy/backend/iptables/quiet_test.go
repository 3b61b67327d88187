package iptables

import (
	"context"
	"os"
	"os/exec"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt"
)

// TestKernelQuiet syncs in both families of the nft variant: our own transactions are told from others', so that no look
// at all rules follows a sync.
func TestKernelQuiet(t *testing.T) {
	_, missing := exec.LookPath("iptables-nft")
	runtime.LockOSThread() // never unlocked: the thread, and the namespace with it, ends with the goroutine
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil || missing != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("run as root, and install iptables:", err, missing)
		}
		t.Skip("skipped: run as root, and install iptables:", err, missing)
	}
	var doors []ipt.Tables
	for _, family := range []ipt.Family{ipt.IPv4, ipt.IPv6} {
		door, err := ipt.Open(context.Background(), family, ipt.NFT)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = door.Close() })
		doors = append(doors, door)
	}
	b := New(testOptions, noSettings{}, doors...)
	c := newSized(5, 2)
	sync(t, b, c.plan())
	for _, endpoints := range []int{3, -3, 1, 0, 2} {
		c.set(4, endpoints)
		sync(t, b, c.plan())
		for _, f := range b.families {
			if f.watch.suspect {
				t.Errorf("%s: after %d endpoints of our own, somebody else is suspected", f.is, endpoints)
			}
			if len(f.watch.digests) == 0 {
				t.Errorf("%s: nothing is known of the chains", f.is)
			}
		}
	}
}
