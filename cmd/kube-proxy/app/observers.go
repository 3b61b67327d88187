//go:build linux

package app

import (
	"context"
	"slices"
	"time"

	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/component-base/version"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/status/v1alpha1"
	"github.com/seed-11a05479/kube-proxy/pkg/check"
	"github.com/seed-11a05479/kube-proxy/pkg/features"
	conntracktable "github.com/seed-11a05479/kube-proxy/pkg/kernel/conntrack"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/host"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/netif"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/announce"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/conntrack"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/health"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/localhost"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/metrics"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/node"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/serve"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/source"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/source/manifests"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/takeover"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/view"
)

// metrics makes the metrics of a process that started at a time.
func (p *process) metrics(rules backend.Backend, counter backend.ConnectionCounter, shown *view.Observer, invalidManifests func() []string, started time.Time) *metrics.Metrics {
	return metrics.New(metrics.Config{
		Families: p.families.All, Start: started, Snapshot: p.Builder.Snapshot,
		Observed: shown.Observed, InvalidManifests: invalidManifests, Counters: rules.Counters(), LocalhostRejected: p.Planning.Localhost.Reject, Connections: p.opts.connections, Counter: counter,
		Limited: p.Planning.Fences.On,
	}, legacyregistry.MustRegister)
}

// watch makes the observer of this node.
func (p *process) watch(ctx context.Context, in *inputs, measured *metrics.Metrics) *node.Watch {
	return node.NewWatch(node.Config{
		Name: p.Name, Families: p.families.All, Plan: p.Planning, NodePortsByDefault: len(p.cfg.NodePortAddresses) == 0,
		Snapshot: p.Builder.Snapshot, Unlisted: in.unlisted, Waiting: measured.Waiting,
		Logger: klog.FromContext(ctx),
	})
}

// checker makes the observer that answers /healthz and /livez.
func (p *process) checker(watch *node.Watch, measured *metrics.Metrics, broken func() []string) *health.Checker {
	if p.opts.canary != check.CanaryHealthz {
		broken = nil
	}
	return health.NewChecker(health.Config{
		Families: p.families.All, SyncPeriod: p.cfg.SyncPeriod.Duration, Waiting: watch.WaitingFor, Broken: broken, Clock: clock.RealClock{},
		HealthzAnswered: measured.Healthz, LivezAnswered: measured.Livez,
	})
}

// healthChecks makes the observer that serves health check node ports.
func (p *process) healthChecks(recorder proxy.Recorder, checker *health.Checker, shown *view.Observer, limits *serve.Limits) *health.Services {
	return health.NewServices(health.ServicesConfig{
		Families: p.families.All, AllAddresses: p.Planning.NodePorts.Everywhere, Healthy: checker.Healthy, Failing: shown.HealthChecks,
		Recorder: recorder, Clock: clock.RealClock{}, Limit: limits.HealthCheckPorts, MaxListeners: limits.Listeners,
	})
}

// staleFlows makes the observer that deletes entries of the connection tracking table.
func (p *process) staleFlows(table conntracktable.Table, measured *metrics.Metrics) *conntrack.Reconciler {
	config := conntrack.Config{Families: p.families.All, Table: table, Swept: measured.ConntrackSwept}
	if p.Planning.ResetGoneEndpoints {
		config.Resets = &conntrack.Resets{Abort: host.AbortTCP, Done: measured.ConnectionsReset}
	}
	return conntrack.New(config)
}

// observers makes all others, and returns them with checker and measured.
func (p *process) observers(ctx context.Context, recorder proxy.Recorder, checker *health.Checker, measured *metrics.Metrics, limits *serve.Limits) []proxy.Observer {
	logger := klog.FromContext(ctx)
	watcher := takeover.New(takeover.Config{
		Mode: string(p.cfg.EffectiveMode()), Others: p.others, Drain: p.opts.gates.Enabled(features.DrainIPVSMode), Seen: measured.OtherProxySeen,
		Families:  slices.Concat(p.families.All, p.leftOut), // a family that was left out keeps its rules of other modes
		Processes: func() ([]int, error) { return host.Processes("kube-proxy") }, Logger: logger,
	})
	all := []proxy.Observer{
		checker,
		measured,
		announce.NewReporter(announce.ReporterConfig{Recorder: recorder, ExternalIPs: measured.ExternalIPs, Logger: logger}),
		watcher,
		proxy.NewAfterSync(func(ctx context.Context) {
			if err := p.tuner.ApplyMissing(ctx); err != nil {
				klog.FromContext(ctx).Error(err, "Cannot configure connection tracking; Services are served without it")
			}
		}),
	}
	if families := p.Planning.Localhost.ForwardedOf(p.families.All); len(families) > 0 {
		all = append(all, localhost.New(localhost.Config{
			Families: families, MaxConnections: limits.Forwarded, Listening: measured.LocalhostListening, ListenFailed: measured.LocalhostFailed,
		}))
	}
	return all
}

// view makes the observer that the API serves.
func (p *process) view(counter backend.ConnectionCounter, waiting, invalidManifests, broken func() []string, started time.Time) *view.Observer {
	return view.New(view.Config{
		Version: version.Get().GitVersion, Mode: string(p.cfg.EffectiveMode()), Started: started, Families: p.families.All, Node: p.Name,
		Renderers: Renderers(p.cfg, p.opts.counters.limits()),
		Invalid: map[string]func() []string{
			v1alpha1.ReasonInvalidConfiguration: p.opts.configFile.Invalid, v1alpha1.ReasonInvalidManifest: invalidManifests, v1alpha1.ReasonDataplane: broken,
			v1alpha1.ReasonFamilyNotServed: p.unserved,
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
