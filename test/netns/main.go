//go:build linux

package netns

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// machineVariable is the environment variable in which [Main] keeps the name of the machine's network namespace.
const machineVariable = "NETNS_TEST_MACHINE"

// Main runs the tests of a package in a process that is not in the machine's network namespace, so that no thread of it can
// change the machine's rules: a subtest, for example, does not run on the thread that [Enter] moved, but on one that still
// is where the process began. Without the right to create a namespace it only runs the tests.
//
//	func TestMain(m *testing.M) { netns.Main(m) }
func Main(m *testing.M) {
	if os.Getenv(machineVariable) == "" {
		if err := restart(); err != nil && !errors.Is(err, unix.EPERM) {
			fmt.Fprintf(os.Stderr, "move the tests out of the machine's network namespace: %v\n", err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

// restart executes this program again, in a new network namespace with a loopback interface. It returns only errors.
func restart() error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	machine, err := os.Readlink(currentNamespace)
	if err != nil {
		return err
	}
	runtime.LockOSThread() // never unlocked: the thread, with its namespace, becomes the new program's first one
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("unshare the network namespace: %w", err)
	}
	loopback, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("find lo: %w", err)
	}
	if err := netlink.LinkSetUp(loopback); err != nil {
		return fmt.Errorf("bring up lo: %w", err)
	}
	return fmt.Errorf("execute %s: %w", program, unix.Exec(program, os.Args, append(os.Environ(), machineVariable+"="+machine)))
}

// apart returns an error if the process is in the machine's network namespace.
func apart() error {
	machine := os.Getenv(machineVariable)
	process, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		return fmt.Errorf("find this process's network namespace: %w", err)
	}
	if machine == "" || machine == process {
		return errors.New("this test could change the machine's own rules: call netns.Main in the package's TestMain")
	}
	return nil
}
