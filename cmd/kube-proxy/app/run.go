//go:build linux

package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/component-base/version"
	"k8s.io/klog/v2"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/config"
	"github.com/seed-11a05479/kube-proxy/pkg/check"
	"github.com/seed-11a05479/kube-proxy/pkg/features"
	conntracktable "github.com/seed-11a05479/kube-proxy/pkg/kernel/conntrack"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/host"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/netlock"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/node"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/serve"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/source/apiserver"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/takeover"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/view"
)

// checkPeriod is the time between two checks for external modifications of the rules. A check takes microseconds.
const checkPeriod = 250 * time.Millisecond

// run does what the command line asks for: it removes rules, prepares the node, or serves until ctx ends.
func run(ctx context.Context, cfg *config.KubeProxyConfiguration, opts runOptions) error {
	if opts.cleanup {
		return takeover.Alone(ctx, owner("cleanup"), func() error { return cleanup(ctx, cfg) })
	}
	p, err := newProcess(ctx, cfg, opts)
	if err != nil {
		return err
	}
	if err := node.SetOOMScore("/proc/self/oom_score_adj", cfg.Linux.OOMScoreAdj); err != nil {
		klog.FromContext(ctx).V(2).Info("The OOM score is unchanged", "reason", err.Error())
	}
	if opts.initOnly {
		return p.initialize(ctx)
	}
	if err := p.checkGrants(klog.FromContext(ctx)); err != nil {
		return err
	}
	return p.run(ctx)
}

// process is what is decided before anything is opened, by the command line, the configuration and the machine.
type process struct {
	ThisNode
	cfg      *config.KubeProxyConfiguration
	opts     runOptions
	mode     backend.Mode
	others   []takeover.Mode
	families backend.Families
	// leftOut are the families that could not be opened, and notOpened is why.
	leftOut   []cluster.Family
	notOpened error
	tuner     *node.Tuner
}

func newProcess(ctx context.Context, cfg *config.KubeProxyConfiguration, opts runOptions) (*process, error) {
	p := &process{cfg: cfg, opts: opts}
	var err error
	if p.mode, p.others, err = ChooseMode(cfg, opts.counters.limits()); err != nil {
		return nil, err
	}
	if p.ThisNode, err = NewThisNode(cfg, opts.gates, cfg.HostnameOverride, MachineHasIPv6()); err != nil {
		return nil, err
	}
	p.families = backend.Families{
		All: p.Wanted, Required: cfg.IPFamilyPolicy == config.IPFamilyPolicyRequireDualStack, FirstRequired: p.given,
	}
	p.tuner = node.NewTuner(host.Kernel{}, conntrackSettings(&cfg.Linux.Conntrack).Settings(host.OnlineCPUs(os.DirFS("/sys"))))
	return p, p.checkFamilies(ctx)
}

// startable returns why the proxy cannot start on this machine with a configuration that is valid by itself. Warnings are not
// logged: the configuration is not in force.
func (l *Loaded) startable() error {
	ctx := klog.NewContext(context.Background(), logr.Discard())
	_, err := newProcess(ctx, l.Config, runOptions{gates: l.Features.Gate, check: l.Check})
	return err
}

// checkFamilies compares the configuration with the families of this machine.
func (p *process) checkFamilies(ctx context.Context) error {
	errs, warnings := config.CheckFamilies(p.cfg, config.Families{
		IPv4: slices.Contains(p.families.All, cluster.IPv4), IPv6: slices.Contains(p.families.All, cluster.IPv6),
	})
	if warning := p.opts.check(warnings); warning != nil {
		klog.FromContext(ctx).Info("The configuration does not match the address families of this machine; set configHardFail to make this an error", "warning", warning.Error())
	}
	return p.opts.check(errs)
}

// initialize does what requires more privileges than serving, and checks that rules can be written (--init-only).
func (p *process) initialize(ctx context.Context) error {
	failed := p.tuner.Apply(ctx)
	rules, err := p.open(ctx)
	if err != nil {
		return errors.Join(failed, err)
	}
	return errors.Join(failed, rules.Close(), p.mode.Prepare(ctx, p.Planning))
}

// run constructs everything in the order of dependence, and serves until ctx ends.
func (p *process) run(ctx context.Context) (err error) {
	started := time.Now()
	if group, set := node.LimitMemory(os.DirFS("/")); set > 0 {
		klog.FromContext(ctx).Info("Memory is limited by the control group; collecting garbage in time", "limitBytes", group, "goMemoryLimitBytes", set)
	}
	flows, err := conntracktable.Open()
	if err != nil {
		return err
	}
	defer flows.Close()
	rules, err := p.open(ctx)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil // a signal interrupted it
	case err != nil:
		return err
	}
	defer func() { err = errors.Join(err, rules.Close()) }()
	p.checkFastPath(ctx)
	p.checkFences(ctx)

	counter := backend.NewSharedCounter(rules.Counters().Connections)
	// What is shown asks these, which are made after it, when everything runs.
	var watch *node.Watch
	var in *inputs
	var tries *check.Canary
	broken := func() []string { return tries.Problems() }
	invalid := func() []string { return in.invalid() }
	shown := p.view(counter, func() []string { return watch.WaitingFor() }, invalid, broken, started)
	measured := p.metrics(rules, counter, shown, invalid, started)
	in, err = p.openInputs(ctx, apiserver.Options{OnHeld: measured.RelistHeld, OnFailure: measured.WatchFailing})
	if err != nil {
		return err
	}
	if err := publishConfig(p.cfg); err != nil {
		return err
	}
	tries = p.canary(ctx, in.recorder, measured)
	limits := serve.NewLimits(node.Descriptors(), host.TCPUser, measured.ConnectionClosed)
	limits.Log(klog.FromContext(ctx))
	serving := &servers{cfg: p.cfg, opts: p.opts, node: p.Name, recorder: in.recorder, limits: limits, api: view.NewHandler(shown)}
	watch = p.watch(ctx, in, measured)
	checker := p.checker(watch, measured, broken)
	turn := takeover.NewTurn(takeover.TurnConfig{
		Owner: owner(string(p.cfg.EffectiveMode())), Serving: checker.Healthy, Serve: serving.standby(in.complete), Waiting: measured.Waiting,
		Begin: func(ctx context.Context) { p.begin(ctx, in.recorder) },
	})
	defer func() { err = errors.Join(err, turn.Release()) }()
	serving.page = view.NewPage(shown, checker.Healthy)
	observers := append(p.observers(ctx, in.recorder, checker, measured, limits), p.healthChecks(in.recorder, checker, shown, limits), watch, shown, in.started,
		p.staleFlows(flows, measured),
		proxy.NewAfterSync(func(context.Context) { debug.FreeOSMemory() })) // what only a start needs
	if tries != nil {
		observers = append(observers, tries)
	}
	loop := proxy.New(proxy.Config{
		Sources: in.sources, Builder: p.Builder, Backend: proxy.NewQuarantine(rules), Plan: p.Planning, Observers: observers,
		MinSyncPeriod: p.cfg.MinSyncPeriod.Duration, PartTime: p.cfg.PartTime(), SyncPeriod: p.cfg.SyncPeriod.Duration, CheckPeriod: checkPeriod,
		Begin: turn.Held(), Measure: host.MeasureCPU,
	})
	parts := []part{
		turn.Run, in.publish, p.followConfig(in.recorder, measured), p.awaitFamilies, loop.Run,
		turn.After(serving.health(checker.Handler())), turn.After(serving.metrics()),
	}
	for _, o := range observers {
		parts = append(parts, o.Run)
	}
	return together(ctx, parts...)
}

// open opens the backend. It leaves out the families that the backend cannot be opened for, if the configuration allows that.
func (p *process) open(ctx context.Context) (backend.Backend, error) {
	opened, families, leftOut, err := backend.OpenUsable(ctx, p.mode, p.families)
	if leftOut != nil {
		klog.FromContext(ctx).Error(leftOut, "Only one address family is served, because the other one cannot be; it is retried", "family", families[0],
			"hint", "if the Node has one family only, ipFamilyPolicy SingleStack says so")
		p.notOpened = leftOut
		p.leftOut = slices.DeleteFunc(slices.Clone(p.families.All), func(f cluster.Family) bool { return slices.Contains(families, f) })
	}
	p.families.All, p.Planning.Families = families, families
	return opened, err
}

// unserved says which family is missing, and why.
func (p *process) unserved() (all []string) {
	for _, family := range p.leftOut {
		if p.Planning.Wants(p.Builder.Snapshot().Node, family) {
			all = append(all, fmt.Sprintf("%s is not served, and tried again: %v", family, p.notOpened))
		}
	}
	return all
}

// checkFastPath turns the fast path off, with one line in the log, if the mode or the kernel has none.
func (p *process) checkFastPath(ctx context.Context) {
	if !p.opts.gates.Enabled(features.FlowtableFastPath) {
		return
	}
	err := p.mode.FastPath(ctx, p.families.All...)
	if p.Planning.FastPath.On = err == nil; err != nil {
		klog.FromContext(ctx).Info("No connection takes the fast path, because this node cannot have one; Services are served without it", "reason", err.Error())
	}
}

// checkFences serves Services without limits, with one line in the log, if the kernel has none.
func (p *process) checkFences(ctx context.Context) {
	if !p.Planning.Fences.On {
		return
	}
	if err := p.mode.Fences(ctx, p.families.All...); err != nil {
		p.Planning.Fences.Missing = "this node cannot limit connections: " + err.Error()
		klog.FromContext(ctx).Error(err, "No connections are limited, because this node cannot do so; Services are served without limits")
	}
}

// awaitFamilies ends the process when a family that was left out can be served, so that it starts again with that family. The
// rules stay in force meanwhile.
func (p *process) awaitFamilies(ctx context.Context) error {
	if len(p.leftOut) == 0 {
		<-ctx.Done()
		return nil
	}
	if !backend.AwaitUsable(ctx, p.mode, p.leftOut[0]) {
		return nil
	}
	if len(p.unserved()) == 0 { // ipFamilyPolicy SingleStack
		<-ctx.Done()
		return nil
	}
	return fmt.Errorf("%s can be served now: start kube-proxy again, as the kubelet does, to serve it too", p.leftOut[0])
}

// begin is called when no other proxy serves this node, before the first sync. Services are served even if the kernel
// settings cannot be changed (package node).
func (p *process) begin(ctx context.Context, recorder proxy.Recorder) {
	logger, mode := klog.FromContext(ctx), p.cfg.EffectiveMode()
	if err := p.tuner.Apply(ctx); err != nil {
		logger.Error(err, "Cannot configure connection tracking; Services are served without it. If a privilege is missing, run an init container with --init-only")
	}
	event := proxy.Event{Kind: "Node", Name: p.Name, Reason: "Starting", Action: "StartKubeProxy",
		Message: fmt.Sprintf("kube-proxy starts in %s mode for %v", mode, p.families.All)}
	recorder.Event(event)
	serving := []any{"node", p.Name, "mode", mode, "families", p.families.All}
	if p.cfg.MetricsBindAddress != "" {
		serving = append(serving, "status", "http://"+p.cfg.MetricsBindAddress+"/")
	}
	logger.Info("Serving", serving...)
	if p.cfg.Mode != "" {
		return
	}
	event.Warning, event.Reason = true, "KubeProxyDefaultMode"
	event.Message = fmt.Sprintf("The proxy mode is not set, and defaults to %s. The default may change in a later version; "+
		"set mode in the configuration file (or --proxy-mode) to the mode that you want", mode)
	logger.Info(event.Message)
	recorder.Event(event)
}

// owner describes this process to others that want the lock.
func owner(mode string) netlock.Owner {
	return netlock.Owner{Mode: mode, Version: version.Get().GitVersion}
}

// part is a part of the process. It returns when ctx ends, or earlier to end the process.
type part = func(ctx context.Context) error

// together runs all parts until ctx ends or one of them returns, and then ends the others.
func together(ctx context.Context, parts ...part) error {
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

// grants is the line of the DaemonSet that grants a capability.
const grants = "in a DaemonSet, securityContext.capabilities.add: [%s] of the container kube-proxy grants it"

// checkGrants checks the capabilities of this process before anything else fails without them. It returns an error if nothing
// can be served, and logs what may go wrong otherwise.
func (p *process) checkGrants(logger klog.Logger) error {
	held, err := host.Effective()
	if err != nil {
		logger.V(2).Info("Unknown capabilities", "reason", err.Error())
		return nil
	}
	if held&host.NetAdmin == 0 {
		return fmt.Errorf("CAP_NET_ADMIN is missing: without it no rule can be written; run as root, or "+grants, "NET_ADMIN")
	}
	if without := p.mode.WithoutRawSockets(); without != "" && held&host.NetRaw == 0 {
		logger.Error(nil, "CAP_NET_RAW is missing: "+without, "hint", fmt.Sprintf(grants, "NET_RAW"))
	}
	return nil
}
