//go:build linux

package nftwatch

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/seed-11a05479/kube-proxy/test/netns"
)

func TestMain(m *testing.M) { netns.Main(m) }

// nft runs a command in the test's namespace.
func nft(t *testing.T, command string) {
	t.Helper()
	run := exec.CommandContext(t.Context(), "nft", "-f", "-")
	run.Stdin = strings.NewReader(command)
	if out, err := run.CombinedOutput(); err != nil {
		t.Fatalf("nft: %v: %s", err, out)
	}
}

// TestKernelWatch checks that each Arm reports one transaction of any size, and that nothing else is reported.
func TestKernelWatch(t *testing.T) {
	netns.Require(t, "nft")
	netns.Enter(t)
	w, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	}()
	reported := func(within time.Duration) bool {
		select {
		case <-w.Modified():
			return true
		case <-time.After(within):
			return false
		}
	}
	wantReport := func(what string) {
		t.Helper()
		if !reported(10 * time.Second) {
			t.Fatalf("%s: not reported", what)
		}
	}
	wantNone := func(what string) {
		t.Helper()
		if reported(100 * time.Millisecond) {
			t.Fatalf("%s: reported", what)
		}
	}
	nft(t, "add table ip a")
	wantNone("not armed")
	w.Arm()
	wantNone("a transaction before Arm")
	nft(t, "add table ip b")
	wantReport("a transaction after Arm")
	nft(t, "add table ip c")
	wantNone("the second transaction after Arm")
	w.Arm()
	nft(t, "list ruleset")
	wantNone("a reader")
	w.Disarm()
	nft(t, "add table ip d")
	wantNone("disarmed")

	var many strings.Builder // more than the socket's queue holds
	many.WriteString("add set ip a s { type ipv4_addr; }\n")
	for i := range 20_000 {
		fmt.Fprintf(&many, "add element ip a s { 10.%d.%d.1 }\n", i>>8, i&255)
	}
	w.Arm()
	nft(t, many.String())
	wantReport("a large transaction")
	wantNone("the rest of it")
	w.Arm()
	nft(t, "add table ip e")
	wantReport("after a large transaction")
	w.Report()
	wantReport("Report")
}

// TestKernelArmAfterClose checks that a Watch that cannot be armed reports that.
func TestKernelArmAfterClose(t *testing.T) {
	netns.Enter(t)
	w, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	w.Arm()
	select {
	case <-w.Modified():
	default:
		t.Error("not reported")
	}
}
