//go:build linux

package backendtest

import (
	"context"
	"testing"
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/test/cases"
	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// restLimit is the time limit of the checks after a change.
const restLimit = 2 * time.Minute

// Modified checks that the backend asks for a Check after a Sync and after other programs wrote its tables, and that it comes to
// rest after they wrote others.
func Modified(t *testing.T, dir string, open Open) {
	s := newSite(t, netns.Options{}, open)
	asks := func(within time.Duration) bool {
		select {
		case <-s.Backend.Modified():
			return true
		case <-time.After(within):
			return false
		}
	}
	wantAsked := func(after string) {
		t.Helper()
		if !asks(10 * time.Second) {
			t.Fatalf("after %s the backend asks for no check", after)
		}
	}
	// wantRest checks until the backend asks for no more checks, and returns what they found. An audit may be delayed by
	// a multiple of the time that the last one took, which is long on an emulated machine.
	wantRest := func(after string) (drifts []backend.Drift) {
		t.Helper()
		for deadline := time.Now().Add(restLimit); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
			_ = s.Lab.Node1.Do(func() error {
				found, err := s.Backend.Check(context.Background())
				if err != nil {
					t.Fatal(err)
				}
				drifts = append(drifts, found...)
				return nil
			})
			if !asks(200 * time.Millisecond) {
				return drifts
			}
		}
		t.Fatalf("after %s the backend still asks for checks, after %s", after, restLimit)
		return nil
	}
	nft := func(command string) {
		t.Helper()
		if out, err := s.Lab.Node1.Command("nft", command).CombinedOutput(); err != nil {
			t.Fatalf("nft %s: %v: %s", command, err, out)
		}
	}
	s.Sync(t, cases.Named(t, dir, "")[0].Plan())
	wantAsked("a sync")
	if drifts := wantRest("a sync"); len(drifts) > 0 {
		t.Fatalf("after a sync Check found %v", drifts)
	}
	nft("add table ip other")
	if drifts := wantRest("another program added a table"); len(drifts) > 0 {
		t.Fatalf("after another program added a table Check found %v", drifts)
	}
	nft("flush ruleset")
	wantAsked("nft flush ruleset")
	if drifts := wantRest("nft flush ruleset"); len(drifts) == 0 {
		t.Fatal("after nft flush ruleset Check found nothing")
	}
}
