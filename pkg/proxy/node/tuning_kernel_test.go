//go:build linux

package node

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/host"
	"github.com/seed-11a05479/kube-proxy/test/netns"
)

func TestMain(m *testing.M) { netns.Main(m) }

// TestKernelTuning writes the settings of a network namespace. The size of the table belongs to the machine, and the kernel
// refuses to change it there, which is no failure.
func TestKernelTuning(t *testing.T) {
	netns.Enter(t)
	conntrack := defaults()
	conntrack.TCPBeLiberal = true
	conntrack.Min = 1 << 30
	tuner := NewTuner(host.Kernel{}, conntrack.Settings(4))
	if err := tuner.Apply(t.Context()); err != nil {
		t.Errorf("refused: %v", err)
	}
	if other := func(s Setting) bool { return s.Name != trackedMax && s.Name != trackedBuckets }; slices.ContainsFunc(tuner.missing, other) {
		t.Errorf("missing: %v", tuner.missing)
	}
	if err := (host.Kernel{}).Write(trackedMax, "1"); !errors.Is(err, host.ErrFixed) {
		t.Errorf("lowered to 1: %v", err)
	}
	for name, want := range map[string]string{"tcp_timeout_established": "86400", "tcp_timeout_close_wait": "3600", "tcp_be_liberal": "1"} {
		if got, err := (host.Kernel{}).Read(prefix + name); err != nil || got != want {
			t.Errorf("%s is %q, %v; want %s", name, got, err, want)
		}
	}
	conntrack.TCPEstablished = 2_000_000 * time.Hour
	if err := NewTuner(host.Kernel{}, conntrack.Settings(4)).Apply(t.Context()); err == nil || !strings.Contains(err.Error(), "set a smaller value") {
		t.Errorf("too large: %v", err)
	}
}
