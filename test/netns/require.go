//go:build linux

package netns

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Check reports what is missing for a lab on this machine: the right to create
// network namespaces, or one of the given tools (looked up in PATH). It returns nil
// if nothing is missing.
func Check(tools ...string) error {
	namespace, err := newNamespace()
	if err != nil {
		return fmt.Errorf("the lab creates network namespaces: run it as root (CAP_SYS_ADMIN and CAP_NET_ADMIN): %w", err)
	}
	namespace.Close()
	for _, tool := range tools {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("the tool %s is not installed (or not in PATH): install it: %w", tool, err)
		}
	}
	return nil
}

// Require ends the test if [Check] returns an error: with CI=true in the
// environment the test fails, so that no test is skipped in CI; otherwise it is
// skipped. Both report what is missing. Without CI=true a test named TestKernel... is
// also skipped unless -run names such tests, so that "go test ./..." is quick.
func Require(t testing.TB, tools ...string) {
	t.Helper()
	if strings.HasPrefix(t.Name(), "TestKernel") && os.Getenv("CI") != "true" &&
		!strings.Contains(flag.Lookup("test.run").Value.String(), "TestKernel") {
		t.Skip("skipped: it sends packets; run it with CI=true, or name it with -run")
	}
	err := Check(tools...)
	switch {
	case err == nil:
	case os.Getenv("CI") == "true":
		t.Fatalf("%v", err)
	default:
		t.Skipf("skipped: %v", err)
	}
}

// Enter moves the test's goroutine, and no other, to a new network namespace, which is removed when the test ends.
// Subtests are not in it; each can call Enter itself. Enter ends the test like [Require] if the namespace cannot be created or
// one of the tools is missing, and fails it if the package's TestMain does not call [Main].
func Enter(t testing.TB, tools ...string) {
	t.Helper()
	Require(t, tools...)
	if err := apart(); err != nil {
		t.Fatal(err)
	}
	runtime.LockOSThread() // never unlocked: the thread ends with the goroutine, and the namespace with it
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatalf("unshare the network namespace: %v", err)
	}
}

// Start builds a lab, which is closed when the test ends. It ends the test like
// [Require] if no lab can be built.
func Start(t testing.TB, options Options) *Lab {
	t.Helper()
	Require(t)
	lab, err := New(options)
	if err != nil {
		t.Fatalf("build the lab: %v", err)
	}
	t.Cleanup(func() {
		if err := lab.Close(); err != nil {
			t.Errorf("remove the lab: %v", err)
		}
	})
	return lab
}
