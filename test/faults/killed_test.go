package faults

import (
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/seed-11a05479/kube-proxy/test/clusters"
)

// TestKilledBetweenOperations kills a process after each of its operations on the doors, of the first sync and of one that
// changes much: rules that are the same before and after are there in between, and the next process makes the state that a
// fresh machine gets.
func TestKilledBetweenOperations(t *testing.T) {
	for name, create := range machines() {
		t.Run(name, func(t *testing.T) {
			kills := 0
			for _, syncs := range []int{0, 3} {
				for after := 1; killAfter(t, create, syncs, after); after++ {
					kills++
				}
			}
			t.Logf("%d kills", kills)
			if kills < 20 {
				t.Errorf("only %d kills", kills)
			}
		})
	}
}

// killAfter kills a process after some operations, and reports whether it needed more. It starts after some syncs of a
// random cluster.
func killAfter(t *testing.T, create func() machine, syncs, after int) bool {
	t.Helper()
	m, cluster := create(), clusters.NewRandom(5, 12)
	for range syncs {
		program(t, m.open(t, nil), cluster.Step())
	}
	before := lines(m.dump())
	wanted := cluster.Step()
	for range 10 {
		wanted = cluster.Step()
	}
	dying := killed(after)
	failed := false
	for _, r := range m.open(t, dying).Sync(t.Context(), wanted) {
		if r.Err != nil && !errors.Is(r.Err, errKilled) {
			t.Fatalf("killed after %d operations: %v", after, r.Err)
		}
		failed = failed || r.Err != nil
	}
	between := lines(m.dump())
	program(t, m.open(t, nil), wanted)
	done := m.dump()
	for line := range lines(done) {
		if before[line] && !between[line] {
			t.Errorf("killed after %d operations: %q was there before and afterwards, but not in between", after, line)
		}
	}
	fresh := create()
	program(t, fresh.open(t, nil), cluster.FromScratch())
	if got, want := timeless(done), timeless(fresh.dump()); got != want {
		t.Errorf("killed after %d operations: differs from a fresh machine:\n%s", after, strings.Join(clusters.ChangedLines(want, got), "\n"))
	}
	_, broken := dying.counts()
	return failed || broken > 0
}

// lines returns the set of lines, each after those that it is indented below: the table and the set or chain.
func lines(dump string) map[string]bool {
	set := map[string]bool{}
	var above []string
	for line := range strings.Lines(dump) {
		depth := len(line) - len(strings.TrimLeft(line, "\t"))
		above = append(above[:min(depth, len(above))], line)
		set[strings.Join(above, "")] = true
	}
	return set
}

// slot is the number of an endpoint's slot in a key of nftables mode. It depends on the order of earlier changes.
var slot = regexp.MustCompile(`(\. )\d+( : )`)

// timeless is a dump without what depends on earlier states: slots, and with it the order of elements.
func timeless(dump string) string {
	all := strings.Split(slot.ReplaceAllString(dump, "${1}slot$2"), "\n")
	slices.Sort(all)
	return strings.Join(all, "\n")
}
