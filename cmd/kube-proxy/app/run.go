//go:build linux

package app

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/component-base/version"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/config"
	trackedflows "github.com/seed-11a05479/kube-proxy/pkg/kernel/conntrack"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/cputime"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/netlock"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/sysctl"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/conntrack"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/contest"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/externalips"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/health"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/localhost"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/metrics"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/node"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/refusals"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/source"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/standby"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/tuning"
)

// checkPeriod is the time between looks whether somebody else changed the rules. A look costs microseconds.
const checkPeriod = 250 * time.Millisecond

// run proxies until ctx ends.
func run(ctx context.Context, cfg *config.KubeProxyConfiguration, opts runOptions) error {
	if opts.cleanup {
		return standby.Alone(ctx, netlock.Name, self("cleanup"), func() error { return cleanup(ctx, cfg) })
	}
	p, err := newProcess(ctx, cfg, opts)
	if err != nil {
		return err
	}
	if err := tuning.SetOOMScore("/proc/self/oom_score_adj", cfg.Linux.OOMScoreAdj); err != nil {
		klog.FromContext(ctx).V(2).Info("The OOM score is unchanged", "reason", err.Error())
	}
	if opts.initOnly {
		return p.initialize(ctx)
	}
	return p.run(ctx)
}

// process is a proxy. Its fields hold what is decided once: from the command line, the configuration and the machine.
type process struct {
	cfg      *config.KubeProxyConfiguration
	opts     runOptions
	name     string
	chosen   dataplane
	planning *plan.Options
	// given are the addresses that the user puts in place of the Node's.
	given []netip.Addr
	// families are those to open the backend for, and then those that it is open for.
	families []cluster.Family
	in       *inputs
	tuner    *tuning.Tuner
}

// newProcess decides what can be decided before anything is opened.
func newProcess(ctx context.Context, cfg *config.KubeProxyConfiguration, opts runOptions) (*process, error) {
	p := &process{cfg: cfg, opts: opts}
	p.tuner = tuning.New(sysctl.Kernel{}, conntrackSettings(&cfg.Linux.Conntrack).Settings(tuning.CPUs(os.DirFS("/sys"))))
	var err error
	if p.chosen, err = chooseDataplane(cfg.Mode); err != nil {
		return nil, err
	}
	if p.name, err = nodeName(cfg.HostnameOverride, os.Hostname); err != nil {
		return nil, err
	}
	if p.given, err = nodeIPOverride(cfg); err != nil {
		return nil, err
	}
	if p.families, err = node.Families(machineFamilies(os.DirFS("/proc")), familyPolicy(cfg), p.given); err != nil {
		return nil, err
	}
	if p.planning, err = planOptions(cfg, opts.gates, p.chosen.nodePorts); err != nil {
		return nil, err
	}
	p.planning.NodePorts.Loopback = p.chosen.mode == config.ProxyModeIPTables && cfg.IPTables.LocalhostNodePorts
	p.planning.Localhost = plan.Localhost{Reject: p.rejectsOnLocalhost(), Forwarded: p.localhostFamilies()}
	return p, checkFamilies(ctx, cfg, opts, p.families)
}

// initialize does what requires more privileges than proxying (--init-only).
func (p *process) initialize(ctx context.Context) error {
	failed := p.tuner.Apply(ctx)
	if p.chosen.prepare != nil {
		failed = errors.Join(failed, p.chosen.prepare(ctx, p.cfg, p.planning))
	}
	return failed
}

// begin runs when no other proxy serves this node, before the first sync. Services are served even if the kernel settings
// cannot be changed (docs/decisions/0009).
func (p *process) begin(ctx context.Context) {
	if err := p.tuner.Apply(ctx); err != nil {
		klog.FromContext(ctx).Error(err, "Connection tracking is not configured; Services are served all the same. Run an init container with --init-only and the required privileges")
	}
	p.announce(ctx)
}

// announce tells the API's users that a proxy begins.
func (p *process) announce(ctx context.Context) {
	event := proxy.Event{Kind: "Node", Name: p.name, Reason: "Starting", Action: "StartKubeProxy",
		Message: fmt.Sprintf("kube-proxy begins in %s mode for %v", p.chosen.mode, p.families)}
	p.in.recorder.Event(event)
	klog.FromContext(ctx).Info("Serving", "node", p.name, "mode", p.chosen.mode, "families", p.families)
	if p.cfg.Mode != "" {
		return
	}
	event.Warning, event.Reason = true, "ProxyModeDefaulted"
	event.Message = fmt.Sprintf("The proxy mode is not set, and was taken to be %s. The default may be another one in a later version; "+
		"set mode in the configuration file (or --proxy-mode) to the one that you want", p.chosen.mode)
	klog.FromContext(ctx).Info(event.Message)
	p.in.recorder.Event(event)
}

// worker is an observer that does something of its own.
type worker interface {
	proxy.Observer
	Run(ctx context.Context) error
}

// run wires backend, sources, loop, observers and servers, each to those before it, and proxies until ctx ends.
func (p *process) run(ctx context.Context) (err error) {
	began, loaded := time.Now(), tuning.ColdStart()
	tracked, err := trackedflows.Open()
	if err != nil {
		return err
	}
	defer tracked.Close()
	opened, err := p.open(ctx)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil // told to end while it looked around
	case err != nil:
		return err
	}
	defer func() { err = errors.Join(err, opened.Close()) }()
	builder := cluster.NewBuilder(p.name, p.given...)
	packets, _ := opened.(backend.PacketCounter)
	measured := metrics.New(metrics.Config{
		Families: p.families, Start: began, Snapshot: builder.Snapshot,
		Names:               p.chosen.names,
		RejectedOnLocalhost: p.rejectedOnLocalhost(ctx),
		Packets:             packets,
	}, legacyregistry.MustRegister)
	if p.in, err = openInputs(ctx, p.cfg, p.name, p.opts, measured.RelistHeld); err != nil {
		return err
	}
	watch := node.NewWatch(node.Config{
		Families: p.families, Plan: p.planning, NodePortsByDefault: len(p.cfg.NodePortAddresses) == 0,
		Snapshot: builder.Snapshot, Unlisted: p.in.unlisted, Waiting: measured.Waiting,
		Logger: klog.FromContext(ctx), Clock: clock.RealClock{},
	})
	checker := health.NewChecker(health.Config{
		Families: p.families, SyncPeriod: p.cfg.SyncPeriod.Duration, Waiting: watch.WaitingFor, Clock: clock.RealClock{},
		HealthzAnswered: measured.Healthz, LivezAnswered: measured.Livez,
	})
	serving := &servers{cfg: p.cfg, opts: p.opts, node: p.name, mode: p.chosen.mode, recorder: p.in.recorder}
	pages, err := serving.metrics()
	if err != nil {
		return err
	}
	unacknowledged := externalips.New(externalips.Config{Recorder: p.in.recorder, Counted: measured.ExternalIPs, Logger: klog.FromContext(ctx)})
	contests := contest.New(contest.Config{Recorder: p.in.recorder, Logger: klog.FromContext(ctx)})
	observers := []proxy.Observer{checker, measured, unacknowledged, contests, refusals.New(p.in.recorder)}
	ready := func() bool { return source.AllComplete(p.in.sources) }
	turn := standby.New(standby.Config{Lock: netlock.Name, Owner: self(string(p.chosen.mode)), Serve: serving.standby(ready), Begin: p.begin})
	defer func() { err = errors.Join(err, turn.Release()) }()
	parts := []func(context.Context) error{turn.Run, p.in.publish, turn.After(serving.health(checker.Handler())), turn.After(pages)}
	afterSync := proxy.NewAfterSync(func(context.Context) { loaded() })
	for _, w := range append(p.workers(ctx, checker, measured, tracked), watch, afterSync) {
		observers, parts = append(observers, w), append(parts, w.Run)
	}
	if p.opts.configFile != nil {
		parts = append(parts, func(ctx context.Context) error {
			return p.followConfig(ctx, measured.ConfigDiffers, measured.ConfigRefused)
		})
	}
	loop := proxy.New(proxy.Config{
		Sources: p.in.sources, Builder: builder, Backend: opened, Plan: p.planning, Observers: observers,
		MinSyncPeriod: p.cfg.MinSyncPeriod.Duration, SyncPeriod: p.cfg.SyncPeriod.Duration, CheckPeriod: checkPeriod,
		Begin: turn.Held(), Spent: cputime.Spent,
	})
	return together(ctx, append(parts, loop.Run)...)
}

// open opens the backend for the families that are served. One that it cannot be opened for, as where there is no ip6tables,
// is left out, unless the configuration makes it the primary one or requires both.
func (p *process) open(ctx context.Context) (backend.Backend, error) {
	opened, err := p.chosen.open(ctx, p.cfg, p.families)
	if err == nil || ctx.Err() != nil || len(p.families) < 2 || p.cfg.IPFamilyPolicy == config.IPFamilyPolicyRequireDualStack {
		return opened, err
	}
	for i := range p.families {
		if i > 0 && len(p.given) > 0 {
			break // the first one is the primary one
		}
		family := p.families[i : i+1]
		if opened, failed := p.chosen.open(ctx, p.cfg, family); failed == nil {
			klog.FromContext(ctx).Error(err, "Only one address family is served, because the other cannot be; set ipFamilyPolicy to SingleStack if this is intended", "family", family[0])
			p.families = family
			return opened, nil
		}
	}
	return nil, err
}

// workers are the observers that do something of their own.
func (p *process) workers(ctx context.Context, checker *health.Checker, measured *metrics.Metrics, tracked trackedflows.Table) []worker {
	all := []worker{
		p.rivals(ctx, measured.OtherProxySeen),
		health.NewServices(health.ServicesConfig{
			Families: p.families, AllAddresses: p.planning.NodePorts.Everywhere, Healthy: checker.Healthy,
			Recorder: p.in.recorder, Clock: clock.RealClock{},
		}),
		proxy.NewAfterSync(func(ctx context.Context) { succeed(ctx, p.cfg, p.chosen.mode) }),
		proxy.NewAfterSync(func(ctx context.Context) {
			if err := p.tuner.ApplyMissing(ctx); err != nil {
				klog.FromContext(ctx).Error(err, "Connection tracking is not configured; Services are served all the same")
			}
		}),
		conntrack.New(conntrack.Config{Families: p.families, Table: tracked, Swept: measured.ConntrackSwept}),
	}
	if families := p.localhostFamilies(); len(families) > 0 {
		all = append(all, localhost.New(localhost.Config{
			Families: families, Listening: measured.LocalhostListening, ListenFailed: measured.LocalhostFailed,
		}))
	}
	return all
}

// rejectsOnLocalhost tells whether node ports on loopback addresses are rejected that this process does not serve.
func (p *process) rejectsOnLocalhost() bool {
	return p.chosen.rejectedOnLocalhost != nil && p.opts.gates.KubeProxyNFTablesLocalhostNodePorts
}

// readTimeout is how long reading the kernel's counters may take for one scrape of the metrics.
const readTimeout = 2 * time.Second

// rejectedOnLocalhost reads how many packets were rejected there; nil where none are.
func (p *process) rejectedOnLocalhost(ctx context.Context) func(cluster.Family) (map[cluster.Protocol]uint64, error) {
	if !p.rejectsOnLocalhost() {
		return nil
	}
	return func(family cluster.Family) (map[cluster.Protocol]uint64, error) {
		ctx, cancel := context.WithTimeout(ctx, readTimeout)
		defer cancel()
		return p.chosen.rejectedOnLocalhost(ctx, family)
	}
}

// localhostFamilies are those on whose loopback address this process itself serves node ports.
func (p *process) localhostFamilies() []cluster.Family {
	if !p.rejectsOnLocalhost() {
		return nil
	}
	named := loopbackFamilies(p.cfg.NodePortAddresses)
	return slices.DeleteFunc(named, func(f cluster.Family) bool { return !slices.Contains(p.families, f) })
}

// together runs all parts until ctx ends or one of them does, and then ends the others.
func together(ctx context.Context, parts ...func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	errs := make([]error, len(parts))
	for i, part := range parts {
		wg.Go(func() {
			defer cancel()
			errs[i] = part(ctx)
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// self describes this process to others that want the lock.
func self(mode string) netlock.Owner {
	return netlock.Owner{Mode: mode, Version: version.Get().GitVersion}
}

// conntrackSettings are the settings of connection tracking that a configuration contains.
func conntrackSettings(c *config.KubeProxyConntrackConfiguration) *tuning.Conntrack {
	return &tuning.Conntrack{
		MaxPerCore: c.MaxPerCore, Min: c.Min,
		TCPEstablished: c.TCPEstablishedTimeout.Duration, TCPCloseWait: c.TCPCloseWaitTimeout.Duration, TCPBeLiberal: c.TCPBeLiberal,
		UDP: c.UDPTimeout.Duration, UDPStream: c.UDPStreamTimeout.Duration,
	}
}
