//go:build linux

package app

import (
	"errors"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/sysctl"
	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// TestKernelTuning sets what a network namespace has of its own; the size of the table is the whole machine's, which
// refuses it there.
func TestKernelTuning(t *testing.T) {
	netns.Enter(t)
	cfg := newOptions().flags
	cfg.Linux.Conntrack.TCPBeLiberal = true
	missing, err := prepareMachine(t.Context(), cfg, sysctl.Kernel{})
	if isMax := func(s setting) bool { return s.name != trackedMax && s.name != trackedBuckets }; slices.ContainsFunc(missing, isMax) {
		t.Errorf("missing: %v", missing)
	}
	if err != nil && (!errors.Is(err, fs.ErrPermission) || strings.Contains(err.Error(), "timeout")) {
		t.Errorf("refused: %v", err)
	}
	for name, want := range map[string]string{"tcp_timeout_established": "86400", "tcp_timeout_close_wait": "3600", "tcp_be_liberal": "1"} {
		if got, err := (sysctl.Kernel{}).Read("net/netfilter/nf_conntrack_" + name); err != nil || got != want {
			t.Errorf("%s is %q, %v; want %s", name, got, err, want)
		}
	}
}
