//go:build linux

package app

import (
	"time"

	"k8s.io/component-base/version"
	"k8s.io/utils/clock"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/status/v1alpha1"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/netif"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/conntrack"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/source"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/source/manifests"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/view"
)

// view makes the observer that the API serves.
func (p *process) view(counter backend.ConnectionCounter, waiting, invalidManifests, broken func() []string, started time.Time) *view.Observer {
	return view.New(view.Config{
		Version: version.Get().GitVersion, Mode: string(p.cfg.EffectiveMode()), Started: started, Families: p.families.All, Node: p.Name,
		Renderers: Renderers(p.cfg, p.opts.counters.limits()),
		Invalid: map[string]func() []string{
			v1alpha1.ReasonInvalidConfiguration: p.opts.configFile.Invalid, v1alpha1.ReasonInvalidManifest: invalidManifests, v1alpha1.ReasonDataplane: broken,
		},
		Waiting: waiting, Unowned: p.Builder.Unowned, Counter: counter, Tracked: conntrack.Open, Clock: clock.RealClock{},
	})
}

// ThisMachine returns what the commands that work without a proxy read of this machine: the addresses of the Node that is
// made from it, and its interfaces.
func ThisMachine() (manifests.Options, []source.Source) {
	machine := netif.Kernel{}
	return manifests.Options{Addrs: machine.NodeAddrs}, []source.Source{source.NewInterfaces(machine)}
}
