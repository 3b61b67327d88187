package node

import (
	"errors"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/host"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/host/hosttest"
)

// untouched returns the settings of a kernel after boot.
func untouched() *hosttest.Fake {
	return &hosttest.Fake{Values: map[string]string{
		"net/netfilter/nf_conntrack_max":                     "262144",
		"net/netfilter/nf_conntrack_buckets":                 "65536",
		"net/netfilter/nf_conntrack_tcp_timeout_established": "432000",
		"net/netfilter/nf_conntrack_tcp_timeout_close_wait":  "60",
		"net/netfilter/nf_conntrack_tcp_be_liberal":          "0",
		"net/netfilter/nf_conntrack_udp_timeout":             "30",
		"net/netfilter/nf_conntrack_udp_timeout_stream":      "120",
	}}
}

// defaults are kube-proxy's defaults.
func defaults() *Conntrack {
	return &Conntrack{MaxPerCore: 32768, Min: 131072, TCPEstablished: 24 * time.Hour, TCPCloseWait: time.Hour}
}

func TestSettings(t *testing.T) {
	for _, test := range []struct {
		name   string
		cpus   int
		change func(*Conntrack)
		want   string // what is written, below nf_conntrack_, in order
	}{
		{"defaults on 4 CPUs", 4, nil, "tcp_timeout_established=86400 tcp_timeout_close_wait=3600"},
		{"defaults on 8 CPUs", 8, nil, "tcp_timeout_established=86400 tcp_timeout_close_wait=3600"},
		{"defaults on 16 CPUs", 16, nil, "max=524288 buckets=131072 tcp_timeout_established=86400 tcp_timeout_close_wait=3600"},
		{"capped on 64 CPUs", 64, nil, "max=1048576 buckets=262144 tcp_timeout_established=86400 tcp_timeout_close_wait=3600"},
		{"a minimum above the cap", 64, func(c *Conntrack) { c.Min = 2_000_000 },
			"max=2000000 buckets=500000 tcp_timeout_established=86400 tcp_timeout_close_wait=3600"},
		{"nothing", 4, func(c *Conntrack) { *c = Conntrack{Min: 131072} }, ""},
		{"everything", 1, func(c *Conntrack) {
			c.TCPBeLiberal, c.UDP, c.UDPStream = true, 1500*time.Millisecond, 10*time.Second
		}, "tcp_timeout_established=86400 tcp_timeout_close_wait=3600 tcp_be_liberal=1 udp_timeout=2 udp_timeout_stream=10"},
	} {
		t.Run(test.name, func(t *testing.T) {
			conntrack := defaults()
			if test.change != nil {
				test.change(conntrack)
			}
			kernel := untouched()
			tuner := NewTuner(kernel, conntrack.Settings(test.cpus))
			if err := tuner.Apply(t.Context()); err != nil {
				t.Fatal(err)
			}
			got := strings.ReplaceAll(strings.Join(kernel.Written, " "), prefix, "")
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("written (-want +got):\n%s", diff)
			}
			kernel.Refuse = fs.ErrPermission // nothing may be written again
			if err := tuner.Apply(t.Context()); err != nil {
				t.Errorf("the second time: %v", err)
			}
		})
	}
}

// TestMissing applies a setting that does not exist at first.
func TestMissing(t *testing.T) {
	kernel := untouched()
	delete(kernel.Values, trackedMax)
	tuner := NewTuner(kernel, defaults().Settings(16))
	if err := tuner.Apply(t.Context()); err != nil {
		t.Error(err)
	}
	if len(kernel.Written) != 3 {
		t.Errorf("written: %v, want all that exist", kernel.Written)
	}
	if err := tuner.ApplyMissing(t.Context()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it still does not exist: %v", err)
	}
	kernel.Values[trackedMax], kernel.Written, kernel.Refuse = "262144", nil, host.ErrFixed
	if err := tuner.ApplyMissing(t.Context()); err != nil {
		t.Errorf("it exists now, for the machine only: %v", err)
	}
	kernel.Refuse = nil
	if err := tuner.ApplyMissing(t.Context()); err != nil || !slices.Equal(kernel.Written, []string{trackedMax + "=524288"}) {
		t.Errorf("it exists now: %v, written: %v", err, kernel.Written)
	}
}

// TestFixed leaves a limit that only the machine's first network namespace can change, and applies all others.
func TestFixed(t *testing.T) {
	kernel := untouched()
	kernel.Refuse = host.ErrFixed
	if err := NewTuner(kernel, defaults().Settings(16)).Apply(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestRefused reports every setting that the kernel refuses.
func TestRefused(t *testing.T) {
	kernel := untouched()
	kernel.Refuse = fs.ErrPermission
	err := NewTuner(kernel, defaults().Settings(8)).Apply(t.Context())
	if !errors.Is(err, fs.ErrPermission) || strings.Count(err.Error(), "tcp_timeout") != 2 {
		t.Errorf("%v", err)
	}
}
