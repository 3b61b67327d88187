//go:build linux

package netns

import (
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// userVariable is the environment variable of a process that [InUserNamespace] started.
const userVariable = "NETNS_TEST_USER"

// InUserNamespace runs the calling test once more, in a process in a user namespace of its own, whose root owns its network
// namespace, as in rootless Kubernetes. It returns true there, and false to the caller, which has nothing left to do. It ends the test
// like [Require].
//
//	if !netns.InUserNamespace(t, "nft") { return }
func InUserNamespace(t *testing.T, tools ...string) bool {
	t.Helper()
	if os.Getenv(userVariable) != "" {
		return true
	}
	Require(t, tools...)
	command := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v", "-test.count=1")
	command.Env = append(os.Environ(), userVariable+"=1")
	root := []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
	command.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWNET, UidMappings: root,
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}, Pdeathsig: syscall.SIGKILL}
	out, err := command.CombinedOutput()
	t.Logf("in a user namespace:\n%s", out)
	if err != nil {
		t.Fatal(err)
	}
	return false
}
