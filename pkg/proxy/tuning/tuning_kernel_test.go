//go:build linux

package tuning

import (
	"errors"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/sysctl"
	"github.com/seed-11a05479/kube-proxy/test/netns"
)

func TestMain(m *testing.M) { netns.Main(m) }

// TestKernelTuning writes the settings of a network namespace. The size of the table belongs to the machine, and the kernel
// refuses to change it there.
func TestKernelTuning(t *testing.T) {
	netns.Enter(t)
	conntrack := defaults()
	conntrack.TCPBeLiberal = true
	tuner := New(sysctl.Kernel{}, conntrack.Settings(4))
	err := tuner.Apply(t.Context())
	if other := func(s Setting) bool { return s.Name != trackedMax && s.Name != trackedBuckets }; slices.ContainsFunc(tuner.missing, other) {
		t.Errorf("missing: %v", tuner.missing)
	}
	if err != nil && (!errors.Is(err, fs.ErrPermission) || strings.Contains(err.Error(), "timeout")) {
		t.Errorf("refused: %v", err)
	}
	for name, want := range map[string]string{"tcp_timeout_established": "86400", "tcp_timeout_close_wait": "3600", "tcp_be_liberal": "1"} {
		if got, err := (sysctl.Kernel{}).Read(prefix + name); err != nil || got != want {
			t.Errorf("%s is %q, %v; want %s", name, got, err, want)
		}
	}
}
