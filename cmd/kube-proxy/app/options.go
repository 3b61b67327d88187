package app

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/component-base/featuregate"
	logsapi "k8s.io/component-base/logs/api/v1"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/config"
	"github.com/seed-11a05479/kube-proxy/pkg/check"
	"github.com/seed-11a05479/kube-proxy/pkg/features"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/announce"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/metrics"
)

// Options are the values of the command line.
type Options struct {
	ConfigFile    string
	writeConfigTo string
	flags         *config.Flags // the fields of the configuration
	runFlags
}

// runFlags are the flags of a run that are not fields of the configuration.
type runFlags struct {
	// master is the URL of the API server; it wins over the kubeconfig. Empty means the kubeconfig's.
	master string
	// manifests is a directory to serve in place of an API server's objects. Empty means there is an API server.
	manifests string
	// cleanup removes all rules and ends.
	cleanup bool
	// initOnly does the privileged part of the start and ends.
	initOnly bool
	// relistGuard holds back a re-list that would remove more than 90 % of at least 100 known endpoints.
	relistGuard bool
	// startupTaint is removed from the Node when its Services are served; the zero value removes none.
	startupTaint announce.Taint
	// canary selects whether the rules are tried, and who gets to know.
	canary check.CanaryLevel
	// connections selects the metrics of connections.
	connections metrics.ConnectionLevel
	// counters limits what the rules count.
	counters counterLevel
}

// runOptions are the settings of a run that are not fields of the configuration.
type runOptions struct {
	runFlags
	// gates are the feature gates.
	gates featuregate.FeatureGate
	// flags are all flags with their values, of the gates those in force.
	flags map[string]string
	// check turns errors of the configuration into one that names lines or flags; nil if there are none.
	check func(field.ErrorList) error
	// configFile is the configuration file that is followed; nil if the flags are the configuration.
	configFile *config.Watch
}

// NewOptions returns options whose flags have the defaults of v1alpha1, as Kubernetes' flags have them.
func NewOptions() *Options {
	return &Options{flags: config.NewFlags(), runFlags: runFlags{canary: check.NoCanary, connections: metrics.NoConnections, counters: autoCounters}}
}

// DefaultConfig returns the configuration that no flag and no file sets.
func DefaultConfig() *config.KubeProxyConfiguration { return config.DefaultV1alpha1() }

func (o *Options) runOptions(l *Loaded, flags *pflag.FlagSet) runOptions {
	run := runOptions{runFlags: o.runFlags, gates: l.Features.Gate, flags: map[string]string{}, check: l.Check}
	flags.VisitAll(func(f *pflag.Flag) { run.flags[f.Name] = f.Value.String() })
	run.flags[gatesFlag] = l.Features.InForce() // a gate may have been set by the file
	if l.File != nil {
		run.configFile = config.NewWatch(o.ConfigFile, func(data []byte) (bool, error) { return o.differs(data, l.Config, flags) })
	}
	return run
}

// Loaded is a checked configuration with its warnings.
type Loaded struct {
	Config   *config.KubeProxyConfiguration
	Features features.Result
	Warnings []string

	File  *config.File // nil if the flags are the configuration
	Flags *pflag.FlagSet
}

// load returns the checked configuration of the command line, or of the file that it names.
func (o *Options) load(flags *pflag.FlagSet) (*Loaded, error) {
	if o.manifests != "" && o.master != "" {
		return nil, UsageError{Err: errors.New("--manifests and --master exclude each other: objects come from one place")}
	}
	if o.manifests != "" && o.startupTaint != (announce.Taint{}) {
		return nil, UsageError{Err: errors.New("--startup-taint needs an API server: it excludes --manifests")}
	}
	if o.ConfigFile != "" {
		return o.LoadFile(flags)
	}
	l := &Loaded{Flags: flags, Warnings: deprecatedFlags(flags), Config: o.flags.Config(flags.Changed)}
	return l, l.Validate(o.platform())
}

// platform is the platform that the configuration must be valid for: this one, or "" (any) if it is only written or if rules
// are only removed.
func (o *Options) platform() string {
	if o.writeConfigTo != "" || o.cleanup {
		return ""
	}
	return runtime.GOOS
}

// LoadFile reads the configuration file. Logging flags and --hostname-override override it. An invalid configuration is
// returned with the error, so that its logging section can be used.
func (o *Options) LoadFile(flags *pflag.FlagSet) (*Loaded, error) {
	file, err := config.ReadFile(o.ConfigFile)
	if err != nil {
		return nil, err
	}
	return o.fromFile(file, flags)
}

// fromFile checks the configuration of a file as LoadFile does.
func (o *Options) fromFile(file *config.File, flags *pflag.FlagSet) (*Loaded, error) {
	l := &Loaded{Config: file.Config, File: file, Flags: flags, Warnings: deprecatedFlags(flags)}
	for _, problem := range file.Warnings {
		l.Warnings = append(l.Warnings, problem.String())
	}
	for _, loss := range file.Dropped {
		l.Warnings = append(l.Warnings, fmt.Sprintf("%s: %s", file.Name, loss))
	}
	if flags.Changed(HostnameFlag) {
		l.Config.HostnameOverride = o.flags.HostnameOverride
	}
	logging := l.Config.Logging.Shared()
	if err := overrideLogging(logging, flags); err != nil {
		return nil, err
	}
	l.Config.Logging = config.LoggingOf(logging)
	if ignored := ignoredFlags(flags); len(ignored) > 0 {
		l.Warnings = append(l.Warnings, fmt.Sprintf("ignored because --config is given: %s; write them into %s instead", strings.Join(ignored, ", "), o.ConfigFile))
	}
	return l, l.Validate(o.platform())
}

// differs reports whether a new content of the configuration file differs from the configuration in force.
func (o *Options) differs(data []byte, inForce *config.KubeProxyConfiguration, flags *pflag.FlagSet) (bool, error) {
	file, err := config.ParseFile(o.ConfigFile, data)
	if err != nil {
		return false, err
	}
	l, err := o.fromFile(file, flags)
	if err == nil {
		err = l.startable()
	}
	if err != nil {
		return false, err
	}
	return !equality.Semantic.DeepEqual(inForce, l.Config), nil
}

// overrideLogging applies the logging flags that were set to a file's logging section.
func overrideLogging(logging *logsapi.LoggingConfiguration, flags *pflag.FlagSet) error {
	own := pflag.NewFlagSet(loggingGroup, pflag.ContinueOnError)
	before := *logging
	logsapi.AddFlags(logging, own)
	*logging = before // registering flags resets some fields to the flags' defaults
	if flags.Changed("vmodule") {
		logging.VModule = nil // setting this flag appends
	}
	var errs []error
	own.VisitAll(func(f *pflag.Flag) {
		if set := flags.Lookup(f.Name); set != nil && set.Changed {
			errs = append(errs, f.Value.Set(set.Value.String()))
		}
	})
	return errors.Join(errs...)
}

// deprecatedFlags returns a warning for each deprecated flag that was set.
func deprecatedFlags(flags *pflag.FlagSet) []string {
	var warnings []string
	flags.Visit(func(f *pflag.Flag) {
		if instead := Deprecation(f.Name); instead != "" {
			warnings = append(warnings, fmt.Sprintf("--%s is deprecated: %s", f.Name, instead))
		}
	})
	return warnings
}

// ignoredFlags returns the flags that were set and have no effect with --config.
func ignoredFlags(flags *pflag.FlagSet) []string {
	var names []string
	flags.Visit(func(f *pflag.Flag) {
		if ignored(f) {
			names = append(names, "--"+f.Name)
		}
	})
	return names
}

// Validate reports all errors at once: of values, of feature gates, of the file's version, and, unless goos is "", whether the
// configuration can be started on that platform.
func (l *Loaded) Validate(goos string) error {
	l.Features = features.Read(l.Config.FeatureGates)
	l.Warnings = append(l.Warnings, l.Features.Warnings...)
	errs := config.Validate(l.Config, l.Features.Gate)
	if goos != "" {
		errs = append(errs, config.Startable(l.Config, goos)...)
	}
	for _, used := range config.GatedFields(l.Config) {
		if !l.Features.Gate.Enabled(featuregate.Feature(used.Gate)) {
			errs = append(errs, field.Forbidden(used.Path, fmt.Sprintf("the feature gate %s is off; set featureGates: {%[1]s: true}, or remove the field", used.Gate)))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(l.Features.Errors)) {
		errs = append(errs, field.Invalid(field.NewPath("featureGates").Child(name), l.Config.FeatureGates[name], l.Features.Errors[name].Error()))
	}
	if l.Config.MetricsBindAddress == "" {
		l.Warnings = append(l.Warnings, "metricsBindAddress is empty: the metrics server is off")
	}
	if l.Config.HealthzBindAddress == "" {
		l.Warnings = append(l.Warnings, "healthzBindAddress is empty: the health check server is off")
	}
	return l.Check(errs)
}

// Check translates errors with paths of v1alpha2 to errors that name lines of the file, or flags.
func (l *Loaded) Check(errs field.ErrorList) error {
	if l.File != nil {
		return l.File.Check(errs)
	}
	var named []error
	for _, e := range errs {
		named = append(named, fmt.Errorf("%s: %s", flagOf(e.Field, l.Config.Mode, l.Flags), e.ErrorBody()))
	}
	return errors.Join(named...)
}

// WriteConfig writes a configuration to a file in a version. In the latest version it first checks that reading the file
// returns the same configuration; v1alpha1 cannot represent everything.
func WriteConfig(name string, stdout io.Writer, cfg *config.KubeProxyConfiguration, version string) error {
	data, err := config.EncodeFor(name, cfg, version)
	if err != nil {
		return err
	}
	again, err := config.ParseFile(name, data)
	if err == nil {
		err = again.Check(nil)
	}
	if err != nil {
		return err
	}
	if version == config.Version && !equality.Semantic.DeepEqual(cfg, again.Config) {
		return fmt.Errorf("%s is not written: version %s cannot represent this configuration; please report this bug", name, version)
	}
	return writeTo(name, stdout, data)
}

// writeTo writes to a file, or to standard output if name is "", - or /dev/stdout. Standard output may be redirected to a
// file, which must not be replaced.
func writeTo(name string, stdout io.Writer, data []byte) error {
	if name == "" || name == "-" || name == "/dev/stdout" {
		_, err := stdout.Write(data)
		return err
	}
	return Uninterrupted(func() error { return config.WriteFile(name, data) })
}

// Uninterrupted lets write finish if a signal arrives, so that no temporary file is left. The process ends after writing in
// any case.
func Uninterrupted(write func() error) error {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)
	return write()
}
