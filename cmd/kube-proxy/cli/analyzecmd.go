package cli

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/component-base/featuregate"

	"github.com/seed-11a05479/kube-proxy/cmd/kube-proxy/app"
	"github.com/seed-11a05479/kube-proxy/pkg/apis/config"
	"github.com/seed-11a05479/kube-proxy/pkg/features"
	"github.com/seed-11a05479/kube-proxy/pkg/findings"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/source/manifests"
	"github.com/seed-11a05479/kube-proxy/pkg/terminal"
)

// The exit codes of "kube-proxy analyze" and "kube-proxy audit".
const (
	exitFindings   = 1
	exitUnreadable = 2
)

// failNever is a value of --fail-on.
const failNever = "never"

// analyzeOptions are the flags of "kube-proxy analyze" and "kube-proxy audit".
type analyzeOptions struct {
	kubeconfig, context string
	manifests           string
	configFile          string
	from, toMode        string
	namespaces          []string
	allNamespaces       bool
	groups, skip        []string
	failOn              string
	output              string
}

func newAnalyzeCommand() *cobra.Command {
	command := &cobra.Command{
		Use:   "analyze [--kubeconfig FILE | --manifests DIR]",
		Short: "Find Services and EndpointSlices that do not work or may be unintended",
		Long: `Find what does not work, or may be unintended, in the Services of a cluster or of manifests. The proxy's own code decides.
docs/findings.md describes each code; build/manifests/analyze-role.yaml grants what it lists.

Exit codes: 0 without findings of the severity --fail-on or worse, 1 with any, 2 if not everything could be read.`,
		Example: `  kube-proxy analyze
  kube-proxy analyze -n shop --fail-on error -o json
  kubectl get services,endpointslices,nodes -A -o yaml | kube-proxy analyze --manifests -`,
	}
	return addAnalysis(command, findings.Warning, findings.Endpoints, findings.Addresses, findings.Nodes)
}

func newAuditCommand() *cobra.Command {
	command := &cobra.Command{
		Use:   "audit [--kubeconfig FILE | --manifests DIR] [--config FILE]",
		Short: "Find Services and Nodes that use unsupported or deprecated features",
		Long: `Find what breaks when you change to this proxy, to another mode (--to-mode, --from) or to another version: external IPs, with
replacements (-o manifests), node ports, settings (--config), kernels, and deprecated fields. It is "kube-proxy analyze --group
upgrade --fail-on info"; build/manifests/audit-role.yaml grants what it lists.

Exit codes: 0 without findings, 1 with any, 2 if not everything could be read; the rest is checked.`,
		Example: `  kube-proxy audit --config /var/lib/kube-proxy/config.conf --to-mode nftables -o json
  kube-proxy audit --from ipvs
  kube-proxy audit -o manifests > instead.yaml`,
	}
	return addAnalysis(command, findings.Info, findings.Upgrade)
}

// addAnalysis makes a command one that analyzes, with the defaults of --fail-on and --group.
func addAnalysis(command *cobra.Command, failOn findings.Severity, groups ...findings.Group) *cobra.Command {
	opts := &analyzeOptions{}
	command.Args = noArgs
	command.RunE = func(cmd *cobra.Command, _ []string) error { return opts.run(cmd) }
	flags := command.Flags()
	flags.StringVar(&opts.kubeconfig, "kubeconfig", "", "Kubeconfig `file`. Default: kubectl's, or a pod's service account.")
	addContext(command, &opts.context)
	flags.StringVar(&opts.manifests, "manifests", "", "Read a `directory` of manifests or one file, not a cluster; - is standard input.")
	flags.StringVar(&opts.configFile, "config", "", "Configuration `file` of the proxy, or a ConfigMap with one.")
	flags.StringVar(&opts.from, "from", "", "Proxy `mode` to change from, in place of that of --config: iptables, nftables, ipvs.")
	flags.StringVar(&opts.toMode, "to-mode", "", "Proxy `mode` to change to: iptables, nftables. From ipvs the default is nftables.")
	flags.StringSliceVarP(&opts.namespaces, "namespace", "n", nil, "Report only findings in these `namespaces`.")
	flags.BoolVarP(&opts.allNamespaces, "all-namespaces", "A", false, "Report findings in all namespaces, the default.")
	flags.StringSliceVar(&opts.groups, "group", names(groups), "Check these `groups`: "+strings.Join(names(findings.Groups()), ", ")+".")
	flags.StringSliceVar(&opts.skip, "skip", nil, "Leave out these `codes` of docs/findings.md.")
	flags.StringVar(&opts.failOn, "fail-on", string(failOn), "Exit with 1 from this `severity` on: "+strings.Join(failOns(), ", ")+".")
	outputFlag(command, &opts.output, outputTable, outputJSON, outputYAML, outputManifests)
	for flag, values := range map[string][]string{"group": names(findings.Groups()), "fail-on": failOns(), "to-mode": servedModes(), "from": leftModes()} {
		accept(command, flag, values)
	}
	complete(command, "skip", names(findings.Codes(groups...)))
	return command
}

func failOns() []string {
	return append([]string{failNever}, names(findings.Severities())...)
}

// servedModes are the modes that a cluster can change to.
func servedModes() []string { return names(config.ServedModes()) }

// leftModes are the modes that a cluster can change from.
func leftModes() []string { return names(config.KnownModes()) }

// check returns a usage error if flags contradict each other or name unknown codes.
func (o *analyzeOptions) check() error {
	switch {
	case o.manifests != "" && (o.kubeconfig != "" || o.context != ""):
		return app.UsageError{Err: errors.New("--manifests and --kubeconfig or --context exclude each other")}
	case o.allNamespaces && len(o.namespaces) > 0:
		return app.UsageError{Err: errors.New("-A and -n exclude each other")}
	}
	for _, name := range o.skip {
		if !slices.Contains(names(findings.Codes()), name) {
			return app.UsageError{Err: fmt.Errorf("--skip: there is no code %q; docs/findings.md lists all", name)}
		}
	}
	return nil
}

// run analyzes, prints, and reports by its exit code.
func (o *analyzeOptions) run(cmd *cobra.Command) error {
	if err := o.check(); err != nil {
		return err
	}
	analyzer, err := o.analyzer(cmd)
	if err != nil {
		return app.ExitCode{Code: exitUnreadable, Err: fmt.Errorf("%s: %w", cmd.Name(), err)}
	}
	bad, err := o.read(cmd, analyzer)
	if err != nil {
		return app.ExitCode{Code: exitUnreadable, Err: fmt.Errorf("%s: %w", cmd.Name(), err)}
	}
	report := analyzer.Report()
	slices.SortStableFunc(report.Findings, func(a, b findings.Finding) int {
		return slices.Index(findings.Severities(), a.Severity) - slices.Index(findings.Severities(), b.Severity)
	})
	err = show(cmd, o.output, report, func() string {
		if o.output == outputManifests {
			return insteadText(report)
		}
		return analysisText(report)
	})
	switch {
	case err != nil:
		return app.ExitCode{Code: exitUnreadable, Err: err}
	case bad != nil:
		return app.ExitCode{Code: exitUnreadable, Err: fmt.Errorf("these objects could not be read and were left out:\n%w", bad)}
	case slices.ContainsFunc(report.Findings, func(f findings.Finding) bool {
		return o.failOn != failNever && f.Severity.AtLeast(findings.Severity(o.failOn))
	}):
		return app.ExitCode{Code: exitFindings}
	}
	return nil
}

// analyzer returns one that has seen the configuration.
func (o *analyzeOptions) analyzer(cmd *cobra.Command) (*findings.Analyzer, error) {
	cfg, gates := app.DefaultConfig(), features.Read(nil).Gate // in force without a file
	planning := &plan.Options{}
	var deprecated []findings.Finding
	if o.configFile != "" {
		l, err := loadValidConfig(cmd, o.configFile)
		if err != nil {
			return nil, err
		}
		cfg, gates, deprecated = l.Config, l.Features.Gate, configFindings(o.configFile, l)
		if planning, err = app.PlanOptions(cfg, gates); err != nil {
			return nil, err
		}
	}
	if o.from != "" {
		left := *cfg
		left.Mode = config.ProxyMode(o.from)
		cfg = &left
	}
	options, err := modeChange(cfg, config.ProxyMode(o.toMode), gates)
	if err != nil {
		return nil, err
	}
	from, to := config.ProxyMode(options.From.Mode), config.ProxyMode(options.To.Mode)
	options.OldestKernel, options.Differences = config.OldestKernel(to), config.ModeDifferences(from, to)
	options.Plan, options.Namespaces = planning, o.namespaces
	for _, group := range o.groups {
		options.Groups = append(options.Groups, findings.Group(group))
	}
	for _, code := range o.skip {
		options.Skip = append(options.Skip, findings.Code(code))
	}
	analyzer := findings.New(options)
	for _, f := range slices.Concat(deprecated, lostSettings(cmp.Or(o.configFile, "(defaults)"), cfg)) {
		analyzer.Add(f)
	}
	return analyzer, nil
}

// read passes all objects to an Analyzer. bad joins an error for each object that could not be read; the others were.
func (o *analyzeOptions) read(cmd *cobra.Command, analyzer *findings.Analyzer) (bad, err error) {
	if o.manifests != "" {
		file, err := manifests.Read(o.manifests, cmd.InOrStdin())
		if len(file.Ignored) > 0 {
			fmt.Fprintln(cmd.ErrOrStderr(), terminal.Printable("passed over "+manifests.Kinds(file.Ignored)))
		}
		analyzer.Manifests(file)
		return file.Err, err
	}
	client, err := restConfig(o.kubeconfig, o.context, "kube-proxy-"+cmd.Name())
	if err != nil {
		return nil, fmt.Errorf("%w; give --kubeconfig, or --manifests to read files", err)
	}
	clients, err := findings.Connect(client)
	if err != nil {
		return nil, err
	}
	shown := progress(cmd)
	return nil, findings.Cluster(cmd.Context(), clients, analyzer, &shown)
}

// modeChange describes a change from the mode of cfg to another mode. If to is empty there is no change, unless this proxy
// cannot run in the mode of cfg.
func modeChange(cfg *config.KubeProxyConfiguration, to config.ProxyMode, gates featuregate.FeatureGate) (change findings.Options, err error) {
	if to == "" && !slices.Contains(config.ServedModes(), cfg.EffectiveMode()) {
		to = config.SuccessorMode
	}
	if to == "" || to == cfg.EffectiveMode() {
		return findings.Options{}, nil
	}
	after := *cfg
	after.Mode = to
	if change.From, err = nodePortsIn(cfg, gates); err != nil {
		return findings.Options{}, err
	}
	change.To, err = nodePortsIn(&after, gates)
	return change, err
}

// nodePortsIn describes where node ports are served with a configuration.
func nodePortsIn(cfg *config.KubeProxyConfiguration, gates featuregate.FeatureGate) (findings.ModeNodePorts, error) {
	options, err := app.PlanOptions(cfg, gates)
	if err != nil {
		return findings.ModeNodePorts{}, err
	}
	in := findings.ModeNodePorts{
		Mode:       string(cfg.EffectiveMode()),
		Everywhere: len(cfg.NodePortAddresses) == 0 && options.NodePorts.Everywhere(cluster.IPv4),
	}
	for _, protocol := range options.ServedOnLoopback(cluster.IPv4) {
		in.Localhost = append(in.Localhost, protocol.String())
	}
	return in, nil
}

// configFindings returns the deprecated and unsupported settings of a file.
func configFindings(path string, l *app.Loaded) []findings.Finding {
	var all []findings.Finding
	add := func(message string) {
		all = append(all, findings.Finding{Code: findings.Configuration, Kind: "File", Name: path, Message: message})
	}
	if l.File.Version != config.Version {
		add(fmt.Sprintf("version %s is not the latest, %s", l.File.Version, config.Version))
	}
	if err := l.Check(config.Startable(l.Config, config.Platform(l.Config))); err != nil {
		add(strings.TrimPrefix(err.Error(), path+":"))
	}
	for _, warning := range l.Warnings {
		add(strings.TrimPrefix(warning, path+":"))
	}
	for _, loss := range l.File.Dropped {
		add(loss.String())
	}
	return all
}

// lostSettings returns the settings of ipvs mode that have no effect any more.
func lostSettings(path string, cfg *config.KubeProxyConfiguration) (all []findings.Finding) {
	for _, lost := range cfg.LostSettings() {
		f := findings.Finding{Code: findings.LostSetting, Kind: "File", Name: path, Message: lost.Field + ": " + lost.Message}
		if lost.Minor {
			f.Severity = findings.Info
		}
		all = append(all, f)
	}
	return all
}

// insteadText has only the manifests, to be reviewed, changed and applied.
func insteadText(report *findings.Report) (text string) {
	for _, finding := range report.Findings {
		if finding.Manifest != "" {
			text += "---\n" + finding.Manifest
		}
	}
	return text
}

// analysisText has a table, the worst findings first, and what to do about each code.
func analysisText(report *findings.Report) string {
	var b strings.Builder
	if len(report.ModeDifferences) > 0 {
		fmt.Fprintln(&b, "The modes differ for all Services:")
		for _, difference := range report.ModeDifferences {
			fmt.Fprintf(&b, "* %s\n", strings.ReplaceAll(terminal.Wrap(difference, 98), "\n", "\n  "))
		}
		fmt.Fprintln(&b)
	}
	if len(report.Findings) == 0 {
		return b.String() + "Nothing found in " + report.Looked() + ".\n"
	}
	table := &terminal.Table{}
	table.Add("SEVERITY", "CODE", "OBJECT", "FINDING")
	for _, f := range report.Findings {
		table.Add(string(f.Severity), string(f.Code), f.Object(), f.Message)
	}
	b.WriteString(table.String())
	printed := map[findings.Code]bool{}
	for _, f := range report.Findings {
		if !printed[f.Code] {
			printed[f.Code] = true
			fmt.Fprintf(&b, "\n%s\n%s\n", f.Code, terminal.Wrap(f.Hint, 100))
		}
	}
	return fmt.Sprintf("%s\n%s in %s.\n", &b, terminal.Count(len(report.Findings), "finding"), report.Looked())
}
