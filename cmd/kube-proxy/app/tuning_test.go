package app

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/config"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/sysctl"
)

// untouched is a kernel as it comes.
func untouched() *sysctl.Fake {
	return &sysctl.Fake{Values: map[string]string{
		"net/netfilter/nf_conntrack_max":                     "262144",
		"net/netfilter/nf_conntrack_buckets":                 "65536",
		"net/netfilter/nf_conntrack_tcp_timeout_established": "432000",
		"net/netfilter/nf_conntrack_tcp_timeout_close_wait":  "60",
		"net/netfilter/nf_conntrack_tcp_be_liberal":          "0",
		"net/netfilter/nf_conntrack_udp_timeout":             "30",
		"net/netfilter/nf_conntrack_udp_timeout_stream":      "120",
	}}
}

func TestTuning(t *testing.T) {
	for _, test := range []struct {
		name   string
		cpus   int
		change func(*config.KubeProxyConntrackConfiguration)
		want   string // what is written, below nf_conntrack_, in order
	}{
		{"defaults on 4 CPUs", 4, nil, "max=131072 tcp_timeout_established=86400 tcp_timeout_close_wait=3600"},
		{"defaults on 8 CPUs", 8, nil, "tcp_timeout_established=86400 tcp_timeout_close_wait=3600"},
		{"defaults on 16 CPUs", 16, nil, "max=524288 buckets=131072 tcp_timeout_established=86400 tcp_timeout_close_wait=3600"},
		{"capped on 64 CPUs", 64, nil, "max=1048576 buckets=262144 tcp_timeout_established=86400 tcp_timeout_close_wait=3600"},
		{"a minimum above the cap", 64, func(c *config.KubeProxyConntrackConfiguration) { c.Min = 2_000_000 },
			"max=2000000 buckets=500000 tcp_timeout_established=86400 tcp_timeout_close_wait=3600"},
		{"nothing", 4, func(c *config.KubeProxyConntrackConfiguration) {
			*c = config.KubeProxyConntrackConfiguration{Min: 131072}
		}, ""},
		{"everything", 1, func(c *config.KubeProxyConntrackConfiguration) {
			c.TCPBeLiberal, c.UDPTimeout.Duration, c.UDPStreamTimeout.Duration = true, 1500*time.Millisecond, 10*time.Second
		}, "max=131072 tcp_timeout_established=86400 tcp_timeout_close_wait=3600 tcp_be_liberal=1 udp_timeout=2 udp_timeout_stream=10"},
	} {
		t.Run(test.name, func(t *testing.T) {
			cfg := &newOptions().flags.Linux.Conntrack
			if test.change != nil {
				test.change(cfg)
			}
			kernel := untouched()
			settings := trackingSettings(cfg, test.cpus)
			if err := tune(t.Context(), kernel, settings); err != nil {
				t.Fatal(err)
			}
			got := strings.ReplaceAll(strings.Join(kernel.Written, " "), "net/netfilter/nf_conntrack_", "")
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("written (-want +got):\n%s", diff)
			}
			kernel.Refuse = fs.ErrPermission // nothing may be written again
			if err := tune(t.Context(), kernel, settings); err != nil {
				t.Errorf("the second time: %v", err)
			}
		})
	}
}

// TestPrepareMachine: what is missing is for later, what is refused is told, and neither keeps the rest.
func TestPrepareMachine(t *testing.T) {
	cfg := newOptions().flags
	kernel := untouched()
	delete(kernel.Values, trackedMax)
	missing, err := prepareMachine(t.Context(), cfg, kernel)
	if err != nil || len(missing) != 1 || missing[0].name != trackedMax {
		t.Errorf("missing %v, error %v", missing, err)
	}
	if len(kernel.Written) == 0 {
		t.Error("the others were not written")
	}
	kernel = untouched()
	kernel.Refuse = fs.ErrPermission
	missing, err = prepareMachine(t.Context(), cfg, kernel)
	if len(missing) != 0 || !errors.Is(err, fs.ErrPermission) || strings.Count(err.Error(), "tcp_timeout") != 2 {
		t.Errorf("refused: missing %v, error %v", missing, err)
	}
}

func TestCPUs(t *testing.T) {
	for list, want := range map[string]int{"0\n": 1, "0-3\n": 4, "0-3,8,10-11\n": 7, "": runtime.NumCPU(), "3-1": runtime.NumCPU(), "x": runtime.NumCPU()} {
		if got := cpus(fstest.MapFS{"devices/system/cpu/online": {Data: []byte(list)}}); got != want {
			t.Errorf("%q: got %d, want %d", list, got, want)
		}
	}
	if got := cpus(fstest.MapFS{}); got != runtime.NumCPU() {
		t.Errorf("without a list: %d", got)
	}
}

func TestAdjustOOMScore(t *testing.T) {
	path := filepath.Join(t.TempDir(), "oom_score_adj")
	if err := adjustOOMScore(path+"/none", -999); err == nil || !strings.Contains(err.Error(), "-999") {
		t.Errorf("%v", err)
	}
	if err := os.WriteFile(path, []byte("0"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := adjustOOMScore(path, -999); err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(path); string(got) != "-999" {
		t.Errorf("%q", got)
	}
}
