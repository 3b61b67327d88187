package nft

import (
	"os"
	"os/exec"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
	"sigs.k8s.io/knftables"
)

// testTable is the name of the tables in these tests.
const testTable = "kube-proxy"

// enterNamespace moves the test's goroutine, and no other, to a network namespace of its own, which goes when the test ends.
func enterNamespace(t testing.TB) {
	t.Helper()
	if _, err := exec.LookPath("nft"); err != nil {
		missing(t, "the program nft is not in PATH: install nftables")
	}
	// The thread is never unlocked, so that it ends with the goroutine, and the namespace with it.
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		missing(t, "cannot make a network namespace ("+err.Error()+"): run as root")
	}
}

// missing fails in CI and skips elsewhere.
func missing(t testing.TB, what string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal(what)
	}
	t.Skip(what)
}

// openKernel opens the kernel's table in a new namespace.
func openKernel(t testing.TB, family knftables.Family) *kernelTable {
	t.Helper()
	enterNamespace(t)
	table, err := Open(family, testTable)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := table.Close(); err != nil {
			t.Error(err)
		}
	})
	return table.(*kernelTable)
}

// nft runs nft(8) in the test's namespace.
func nft(t testing.TB, args ...string) string {
	t.Helper()
	out, err := exec.Command("nft", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("nft %q: %v\n%s", args, err, out)
	}
	return string(out)
}
