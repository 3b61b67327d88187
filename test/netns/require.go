//go:build linux

package netns

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// Check tells what is missing for a laboratory on this machine: the right to make
// network namespaces, or one of the given tools (looked up in PATH). It gives nil
// when all is there.
func Check(tools ...string) error {
	namespace, err := newNamespace()
	if err != nil {
		return fmt.Errorf("the laboratory makes network namespaces: run it as root (CAP_SYS_ADMIN and CAP_NET_ADMIN): %w", err)
	}
	namespace.Close()
	for _, tool := range tools {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("the tool %s is not installed (or not in PATH): install it: %w", tool, err)
		}
	}
	return nil
}

// Require ends the test when [Check] finds something missing: it fails where the
// environment has CI=true, as nothing may be left unproven there, and skips
// elsewhere. Either way it says what is missing.
func Require(t testing.TB, tools ...string) {
	t.Helper()
	err := Check(tools...)
	switch {
	case err == nil:
	case os.Getenv("CI") == "true":
		t.Fatalf("%v", err)
	default:
		t.Skipf("skipped: %v", err)
	}
}

// Enter moves the test's goroutine, and no other, to a network namespace of its own, which goes when the test ends.
// It ends the test as [Require] does where that cannot be, or one of the tools is missing.
func Enter(t testing.TB, tools ...string) {
	t.Helper()
	Require(t, tools...)
	runtime.LockOSThread() // never unlocked: the thread ends with the goroutine, and the namespace with it
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatalf("unshare the network namespace: %v", err)
	}
}

// Start builds a laboratory for a test, which removes it at its end. It ends the
// test as [Require] does where none can be built.
func Start(t testing.TB, options Options) *Lab {
	t.Helper()
	Require(t)
	lab, err := New(options)
	if err != nil {
		t.Fatalf("build the laboratory: %v", err)
	}
	t.Cleanup(func() {
		if err := lab.Close(); err != nil {
			t.Errorf("remove the laboratory: %v", err)
		}
	})
	return lab
}
