package iptables

import (
	"testing"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt/ipttest"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend/keeper"
)

// newBackend returns a backend on doors of one variant, with their notices.
func newBackend(t testing.TB, of Settings, doors ...ipt.Tables) *Backend {
	t.Helper()
	return New(testOptions, of, noticesOf(t, doors...), doors...)
}

func noticesOf(t testing.TB, doors ...ipt.Tables) keeper.Notices {
	t.Helper()
	if m, ok := doors[0].(*meddled); ok {
		return &meddledNotices{noticesOf(t, m.Tables), m}
	}
	var fakes []*ipttest.Fake
	var families []ipt.Family
	for _, door := range doors {
		if fake := fakeOf(door); fake != nil {
			fakes = append(fakes, fake)
		}
		families = append(families, door.Family())
	}
	if fakes != nil {
		return ipttest.NewNotices(fakes...)
	}
	notices, err := OpenNotices(doors[0].Features().Variant, families...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = notices.Close() })
	return notices
}

// meddledNotices are those at which another program may write, too.
type meddledNotices struct {
	keeper.Notices
	*meddled
}

func (n *meddledNotices) Take() ([]nf.Write, bool) {
	n.called()
	return n.Notices.Take()
}

func (n *meddledNotices) Pause() error {
	n.called()
	return n.Notices.Pause()
}

func (n *meddledNotices) Resume(own int) bool {
	n.called()
	return n.Notices.Resume(own)
}

func (n *meddledNotices) Close() error { return n.Notices.Close() }
