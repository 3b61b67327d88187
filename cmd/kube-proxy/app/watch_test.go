package app

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/host"
	"github.com/seed-11a05479/kube-proxy/test/kubeproxy"
)

// TestDiffers checks what counts as a change of the configuration file, and that a file with which the proxy cannot start is
// invalid: a running proxy must not exit because of it.
func TestDiffers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.conf")
	kubeproxy.MustWrite(path, kubeproxy.LatestHead+"mode: iptables\n")
	opts, flags := parse(t, "--config="+path, "--hostname-override=n", "-v=2")
	l, err := opts.load(flags)
	if err != nil {
		t.Fatal(err)
	}
	notHere := "ipFamilyPolicy: RequireDualStack\n"
	if host.HasIPv6(os.DirFS("/proc")) {
		notHere = "nodePortAddresses: [192.0.2.0/24]\n"
	}
	for content, want := range map[string]struct {
		differs bool
		invalid string
	}{
		"mode: iptables\n":  {},
		"# a comment\n{}\n": {invalid: "is not YAML"},
		"mode: iptables\nsyncPeriod: 30s\nnodePortAddresses: []\n": {}, // defaults
		"mode: iptables\nhostnameOverride: other\n":                {}, // the flag wins
		"mode: iptables\nlogging: {flushFrequency: 5000ms}\n":      {},
		"mode: iptables\nsyncPeriod: 31s\n":                        {differs: true},
		"mode: iptables\nfeatureGates: {AllAlpha: false}\n":        {differs: true},
		notHere:                  {invalid: "IPv6"},
		"":                       {differs: true},
		"mode: userspace\n":      {invalid: "config.conf:3: mode: Unsupported value"},
		"mode: ipvs\n":           {invalid: "config.conf:3: mode: Invalid value"},
		"mode: nftables\na: 1\n": {invalid: "config.conf:4: a: unknown field"},
	} {
		differs, err := opts.differs([]byte(kubeproxy.LatestHead+content), l.Config, flags)
		if differs != want.differs || (err == nil) != (want.invalid == "") || err != nil && !strings.Contains(err.Error(), want.invalid) {
			t.Errorf("differs is %t, %v; want %+v, of:\n%s", differs, err, want, content)
		}
	}
}
