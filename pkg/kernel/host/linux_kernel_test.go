//go:build linux

package host

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/test/netns"
)

func TestMain(m *testing.M) { netns.Main(m) }

// TestKernelApart runs a program in a new network namespace, and checks the error without CAP_SYS_ADMIN.
func TestKernelApart(t *testing.T) {
	netns.Enter(t, "readlink")
	own, err := NetworkNamespace()
	if err != nil {
		t.Fatal(err)
	}
	out, err := Apart(t.Context(), "readlink", "/proc/self/ns/net").Output()
	if there := strings.TrimSpace(string(out)); err != nil || there == own || !strings.HasPrefix(there, "net:[") {
		t.Errorf("the program ran in %q, %v; this is %q", there, err, own)
	}
	if err := unix.Prctl(unix.PR_CAPBSET_DROP, unix.CAP_SYS_ADMIN, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	data := [2]unix.CapUserData{}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	if err := unix.Capget(&header, &data[0]); err != nil {
		t.Fatal(err)
	}
	data[0].Effective &^= 1 << unix.CAP_SYS_ADMIN
	if err := unix.Capset(&header, &data[0]); err != nil {
		t.Fatal(err)
	}
	if err := Apart(t.Context(), "readlink", "/proc/self/ns/net").Run(); !errors.Is(err, unix.EPERM) {
		t.Errorf("without CAP_SYS_ADMIN: %v", err)
	}
}
