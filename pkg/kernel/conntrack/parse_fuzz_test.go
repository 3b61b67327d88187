package conntrack

import (
	"errors"
	"testing"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/internal/netlink"
)

// FuzzParse checks that malformed attributes are an error.
func FuzzParse(f *testing.F) {
	f.Add([]byte{8, 0, 1, 0x80, 4, 0, 1, 0x80})
	f.Add([]byte{5, 0, 12, 0, 9})
	f.Fuzz(func(t *testing.T, attrs []byte) {
		var e entry
		if err := e.parse(netlink.ReadAttrs(attrs)); err != nil && !errors.Is(err, netlink.ErrMalformed) {
			t.Error(err)
		}
	})
}
