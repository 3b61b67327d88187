//go:build linux

package nf

import (
	"cmp"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/internal/netlink"
	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// ours is the table that the tests watch.
var ours = TableName{unix.NFPROTO_IPV4, "ours"}

// script runs commands in the test's namespace.
func script(t *testing.T, command string) {
	t.Helper()
	run := exec.CommandContext(t.Context(), "nft", "-f", "-")
	run.Stdin = strings.NewReader(command)
	if out, err := run.CombinedOutput(); err != nil {
		t.Fatalf("nft: %v: %s", err, out)
	}
}

// many returns the addition of so many elements to a set of our table.
func many(n int) string {
	var b strings.Builder
	b.WriteString("add element ip ours s {")
	for i := range n {
		fmt.Fprintf(&b, "10.%d.%d.%d, ", i>>16, i>>8&255, i&255)
	}
	return b.String() + "}\n"
}

// watching opens a Watch in a new namespace with our table.
func watching(t *testing.T) *Watch {
	t.Helper()
	netns.Require(t, "nft")
	netns.Enter(t)
	script(t, "add table ip ours; add chain ip ours c; add set ip ours s { type ipv4_addr; }")
	return opened(t, watchQueue)
}

// opened opens a Watch with a queue of so many bytes.
func opened(t *testing.T, queue int) *Watch {
	t.Helper()
	requests, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	listener, err := netlink.Listen(unix.NFNLGRP_NFTABLES, queue)
	if err != nil {
		t.Fatal(err)
	}
	w, err := NewWatch(requests, listener, ours)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

func reported(w *Watch, within time.Duration) bool {
	select {
	case <-w.Modified():
		return true
	case <-time.After(within):
		return false
	}
}

// wantTaken checks how many transactions there were.
func wantTaken(t *testing.T, w *Watch, what string, n int, complete bool) (writes []Write) {
	t.Helper()
	writes, all := w.Take()
	if len(writes) != n || all != complete {
		t.Errorf("%s: all %t: %+v; want %d, all %t", what, all, writes, n, complete)
	}
	return writes
}

// TestKernelWatch has nft write our table and others: only what it wrote to ours is reported, with its name.
func TestKernelWatch(t *testing.T) {
	w := watching(t)
	wantTaken(t, w, "nothing", 0, true)
	script(t, "add table inet ours; add table ip other; add chain ip other c")
	script(t, "list ruleset")
	if reported(w, 100*time.Millisecond) {
		t.Error("other tables are reported")
	}
	wantTaken(t, w, "other tables", 0, true)
	script(t, "add rule ip ours c accept; add rule ip ours c accept; add rule ip other c accept")
	script(t, "add element ip ours s { 10.0.0.1 }")
	script(t, "add chain ip ours h { type filter hook input priority 0; }")
	script(t, "delete chain ip ours h")
	script(t, "flush ruleset")
	if !reported(w, 10*time.Second) {
		t.Error("our table is not reported")
	}
	chain, set := Object{Table: ours, Kind: ChainObject, Name: "c"}, Object{Table: ours, Kind: SetObject, Name: "s"}
	element, table := Object{Table: ours, Kind: ElementObject, Name: "s", Key: "\x0a\x00\x00\x01"}, Object{Table: ours}
	hooked, unhooked := Object{Table: ours, Kind: ChainObject, Name: "h", Hooked: true}, Object{Table: ours, Kind: ChainObject, Name: "h"}
	for i, write := range wantTaken(t, w, "our table", 5, true) {
		want := [][]Object{{chain}, {element}, {hooked}, {unhooked}, {table, chain, set}}[i] // the kernel reports the chain twice
		slices.SortFunc(write.Objects, func(a, b Object) int { return cmp.Compare(a.Kind, b.Kind) })
		write.Objects = slices.Compact(write.Objects)
		if write.Program != "nft" || write.Process == 0 || !slices.Equal(write.Objects, want) {
			t.Errorf("transaction %d: %+v, want the objects %v", i, write, want)
		}
	}
	w.Report()
	if !reported(w, 10*time.Second) {
		t.Error("Report reports nothing")
	}
}

// TestKernelWatchLosesSome has the kernel send more than the queue holds.
func TestKernelWatchLosesSome(t *testing.T) {
	watching(t)
	w := opened(t, 16<<10)
	w.mu.Lock() // nothing is read
	script(t, many(2000))
	w.mu.Unlock()
	if _, all := w.Take(); all {
		t.Error("nothing is missed")
	}
	script(t, "add element ip ours s { 10.200.0.1 }")
	w.Take() // its beginning may look like the end of the lost one
	script(t, "add element ip ours s { 10.200.0.2 }")
	wantTaken(t, w, "after the loss", 1, true)
}

// TestKernelWatchLeaves has a program write more than the Watch wants to read.
func TestKernelWatchLeaves(t *testing.T) {
	w := watching(t)
	w.Modified()
	for range 3 {
		script(t, "flush set ip ours s\n"+many(maxMessages*3/4))
		time.Sleep(10 * time.Millisecond)
	}
	if !reported(w, 10*time.Second) {
		t.Error("they are not reported")
	}
	w.mu.Lock()
	if w.member || len(w.writes) > 2 {
		t.Errorf("it is a member of the group: %t; it has %d transactions", w.member, len(w.writes))
	}
	w.mu.Unlock()
	if _, all := w.Take(); all {
		t.Error("nothing is missed")
	}
	script(t, "add element ip ours s { 10.200.0.1 }")
	wantTaken(t, w, "afterwards", 1, true)
}

// TestKernelWatchPauses makes transactions in a pause, alone and not.
func TestKernelWatchPauses(t *testing.T) {
	w := watching(t)
	for own, alone := range []bool{false, true, false} {
		script(t, "add element ip ours s { 10.200.0.1 }; delete element ip ours s { 10.200.0.1 }")
		if err := w.Pause(); err != nil {
			t.Fatal(err)
		}
		script(t, many(100)+"flush set ip ours s")
		if got := w.Resume(own); got != alone {
			t.Errorf("one transaction, %d of our own: alone %t", own, got)
		}
		wantTaken(t, w, "what was written before the pause", 1, true)
		script(t, "add table ip other")
		script(t, "add element ip ours s { 10.200.0.1 }; delete element ip ours s { 10.200.0.1 }")
		wantTaken(t, w, "after the pause", 1, true)
	}
	if err := w.Pause(); err != nil {
		t.Fatal(err)
	}
	if _, all := w.Take(); !all {
		t.Error("a pause without transactions hides some")
	}
}
