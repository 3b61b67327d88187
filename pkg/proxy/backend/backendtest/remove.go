package backendtest

import (
	"testing"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/test/cases"
	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// RemoveFamily removes the rules of one case in one family after the other: those of the other family must stay.
func RemoveFamily(t *testing.T, dir string, mode backend.Remover, open Open) {
	s := newSite(t, netns.Options{}, open)
	present := func(families ...cluster.Family) (is bool) {
		t.Helper()
		err := s.Lab.Node1.Do(func() (err error) { is, err = mode.Present(t.Context(), families...); return err })
		if err != nil {
			t.Fatal(err)
		}
		return is
	}
	s.Sync(t, cases.Named(t, dir, "")[0].Plan())
	for _, step := range []struct {
		remove           cluster.Family
		ipv4, ipv6, some bool
	}{{0, true, true, true}, {cluster.IPv4, false, true, true}, {cluster.IPv6, false, false, false}} {
		if step.remove != 0 {
			if err := s.Lab.Node1.Do(func() error { return mode.Remove(t.Context(), step.remove) }); err != nil {
				t.Fatal(err)
			}
		}
		got := [...]bool{present(cluster.IPv4), present(cluster.IPv6), present()}
		if want := [...]bool{step.ipv4, step.ipv6, step.some}; got != want {
			t.Errorf("after removing %s: present in IPv4, in IPv6 and in either: %v, want %v", step.remove, got, want)
		}
	}
}
