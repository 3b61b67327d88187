//go:build linux

package app

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"
	"k8s.io/klog/v2"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/config"
	"github.com/seed-11a05479/kube-proxy/pkg/features"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend/iptables"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// fastMode is a mode whose kernel has a fast path, or not.
type fastMode struct {
	backend.Mode
	err error
}

func (m fastMode) FastPath(context.Context, ...cluster.Family) error { return m.err }

func (m fastMode) Fences(context.Context, ...cluster.Family) error { return m.err }

// TestCheckFences has the plan go without limits, with one line, where there are none.
func TestCheckFences(t *testing.T) {
	for _, on := range []bool{false, true} {
		for _, err := range []error{nil, errors.New("no module")} {
			var lines []string
			ctx := klog.NewContext(t.Context(), funcr.New(func(_, line string) { lines = append(lines, line) }, funcr.Options{}))
			p := &process{mode: fastMode{err: err}}
			p.Planning = &plan.Options{Fences: plan.Fences{On: on}}
			p.checkFences(ctx)
			missing := on && err != nil
			if got := p.Planning.Fences.Missing; strings.Contains(got, "no module") != missing || (len(lines) == 1) != missing {
				t.Errorf("on %t, %v: missing %q, logged %q", on, err, got, lines)
			}
		}
	}
}

// TestCheckFastPath turns the fast path off, with one line, where there is none.
func TestCheckFastPath(t *testing.T) {
	for _, test := range []struct {
		name   string
		gate   bool
		mode   config.ProxyMode
		kernel error
		on     bool
		logs   string
	}{
		{"without the gate", false, config.ProxyModeNFTables, nil, false, ""},
		{"nftables", true, config.ProxyModeNFTables, nil, true, ""},
		{"no flowtable", true, config.ProxyModeNFTables, errors.New("no flowtable"), false, "no flowtable"},
		{"iptables", true, config.ProxyModeIPTables, nil, false, "mode iptables has none"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var lines []string
			ctx := klog.NewContext(t.Context(), funcr.New(func(_, line string) { lines = append(lines, line) }, funcr.Options{}))
			cfg := &config.KubeProxyConfiguration{Mode: test.mode}
			p := &process{cfg: cfg, mode: fastMode{err: test.kernel}, opts: runOptions{gates: features.Read(map[string]bool{"FlowtableFastPath": test.gate}).Gate}}
			if test.mode == config.ProxyModeIPTables {
				p.mode = iptables.Mode{}
			}
			p.Planning = &plan.Options{FastPath: plan.FastPath{On: test.gate && cfg.HasFastPath()}}
			p.checkFastPath(ctx)
			if p.Planning.FastPath.On != test.on {
				t.Errorf("the fast path is %t", p.Planning.FastPath.On)
			}
			if text := strings.Join(lines, "\n"); len(lines) > 1 || (test.logs == "") != (text == "") || !strings.Contains(text, test.logs) {
				t.Errorf("logged %q, want %q", lines, test.logs)
			}
		})
	}
}
