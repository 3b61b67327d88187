package app

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/config"
	"github.com/seed-11a05479/kube-proxy/pkg/features"
	"github.com/seed-11a05479/kube-proxy/pkg/findings"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/terminal"
)

// auditOptions are the flags of "kube-proxy audit".
type auditOptions struct {
	from        objectsFrom
	configFile  string
	toMode      string
	output      string
	checkOutput func() error
	skip        []string
}

func newAuditCommand() *cobra.Command {
	opts := &auditOptions{from: objectsFrom{userAgent: "kube-proxy-audit"}}
	command := &cobra.Command{
		Use:   "audit [--kubeconfig FILE | --manifests DIR] [--config FILE] [--to-mode MODE]",
		Short: "Find Services and Nodes that use unsupported or deprecated features",
		Long: `Reads every Service and Node of a cluster, or of manifests, and finds

  external IPs, which are not served unless a feature gate allows them, and what to write instead;
  spec.loadBalancerIP that no controller acknowledged;
  node ports that a change of the proxy mode moves to other addresses (--to-mode, or --config with mode ipvs);
  nodes whose kubelet reports a kube-proxy version, which it cannot know;
  deprecated or unsupported settings of a configuration file (--config).

It only lists Services and Nodes: build/manifests/audit-role.yaml grants the rights that it needs.

Exits with 0 if nothing was found, with 1 if there are findings, and with 2 if not everything could be read. A manifest with
an object that cannot be read is audited without that object.`,
		Example: `  kube-proxy audit
  kube-proxy audit --kubeconfig ~/.kube/config --config /var/lib/kube-proxy/config.conf --to-mode nftables -o json
  kube-proxy audit -o manifests > instead.yaml
  kubectl get services,nodes -A -o yaml | kube-proxy audit --manifests -`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runAudit(cmd, opts) },
	}
	flags := command.Flags()
	opts.from.addFlags(command)
	flags.StringVar(&opts.configFile, "config", "", "configuration `file`, or a ConfigMap that contains one, to audit as well.")
	flags.StringVar(&opts.toMode, "to-mode", "", "proxy `mode` that the cluster is to change to, from that of --config or iptables: iptables or nftables.")
	flags.StringSliceVar(&opts.skip, "skip", nil, "Comma-separated `checks` to leave out: "+strings.Join(checkNames(), ", ")+".")
	opts.checkOutput = outputFlag(command, &opts.output, outputTable, outputJSON, outputManifests)
	_ = command.RegisterFlagCompletionFunc("to-mode", cobra.FixedCompletions(servedModes(), cobra.ShellCompDirectiveNoFileComp))
	_ = command.RegisterFlagCompletionFunc("skip", cobra.FixedCompletions(checkNames(), cobra.ShellCompDirectiveNoFileComp))
	return command
}

// servedModes are the modes that a cluster can change to.
func servedModes() []string { return names(config.ServedModes()) }

func checkNames() []string { return names(findings.Codes(findings.Upgrade)) }

// check rejects invalid flags.
func (o *auditOptions) check() error {
	if err := o.checkOutput(); err != nil {
		return err
	}
	if o.toMode != "" {
		if err := checkOneOf("to-mode", servedModes(), o.toMode); err != nil {
			return err
		}
	}
	if err := o.from.check(); err != nil {
		return err
	}
	return checkOneOf("skip", checkNames(), o.skip...)
}

// runAudit audits, prints, and reports by its exit code.
func runAudit(cmd *cobra.Command, opts *auditOptions) error {
	if err := opts.check(); err != nil {
		return err
	}
	report, bad, err := opts.audit(cmd)
	if err != nil {
		return exitCode{exitUnreadable, fmt.Errorf("audit failed: %w", err)}
	}
	out := cmd.OutOrStdout()
	switch opts.output {
	case outputJSON:
		err = printReportJSON(out, report)
	case outputManifests:
		err = printInstead(out, report)
	default:
		err = printReport(out, report)
	}
	switch {
	case err != nil:
		return exitCode{exitUnreadable, err}
	case bad != nil:
		return exitCode{exitUnreadable, fmt.Errorf("these objects could not be read and were not audited:\n%w", bad)}
	case len(report.Findings) > 0:
		return exitCode{exitFindings, nil}
	}
	return nil
}

// audit audits everything that the command line names. bad are objects that could not be read.
func (o *auditOptions) audit(cmd *cobra.Command) (report *findings.Report, bad, err error) {
	cfg, gates := defaultConfig(), features.Read(nil).Gates // in force without a file
	var deprecated []findings.Finding
	if o.configFile != "" {
		l, err := loadValidConfig(cmd, o.configFile)
		if err != nil {
			return nil, nil, err
		}
		cfg, gates = l.cfg, l.features.Gates
		deprecated = configFindings(o.configFile, l)
	}
	options, err := modeChange(cfg, config.ProxyMode(o.toMode), gates)
	if err != nil {
		return nil, nil, err
	}
	options.Groups = []findings.Group{findings.Upgrade}
	for _, name := range o.skip {
		options.Skip = append(options.Skip, findings.Code(name))
	}
	analyzer := findings.New(options)
	for _, finding := range deprecated {
		analyzer.Add(finding)
	}
	bad, err = o.from.read(cmd, analyzer)
	if err != nil {
		return nil, nil, err
	}
	return analyzer.Report(), bad, nil
}

// modeChange describes a change from the mode of cfg to another mode. If to is empty there is no change, unless this proxy
// cannot run in the mode of cfg.
func modeChange(cfg *config.KubeProxyConfiguration, to config.ProxyMode, gates features.Gates) (change findings.Options, err error) {
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
func nodePortsIn(cfg *config.KubeProxyConfiguration, gates features.Gates) (findings.ModeNodePorts, error) {
	options, err := planOptions(cfg, gates)
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

// auditFinding is a finding in the output of the audit, which calls a code a check.
type auditFinding struct {
	Check     findings.Code `json:"check"`
	Kind      string        `json:"kind"`
	Namespace string        `json:"namespace,omitempty"`
	Name      string        `json:"name"`
	Message   string        `json:"message"`
	Manifest  string        `json:"manifest,omitempty"`
}

func printReportJSON(out io.Writer, report *findings.Report) error {
	all := make([]auditFinding, len(report.Findings))
	for i, f := range report.Findings {
		all[i] = auditFinding{f.Code, f.Kind, f.Namespace, f.Name, f.Message, f.Manifest}
	}
	return printObject(out, outputJSON, struct {
		Kind     string         `json:"kind"`
		Version  string         `json:"version"`
		Services int            `json:"services"`
		Nodes    int            `json:"nodes"`
		Findings []auditFinding `json:"findings"`
	}{"AuditReport", "v1", report.Services, report.Nodes, all})
}

// printInstead prints only the manifests, to be reviewed, changed and applied.
func printInstead(out io.Writer, report *findings.Report) error {
	for _, finding := range report.Findings {
		if finding.Manifest != "" {
			if _, err := fmt.Fprintf(out, "---\n%s", finding.Manifest); err != nil {
				return err
			}
		}
	}
	return nil
}

// printReport prints a table, and what to do about each kind of finding.
func printReport(out io.Writer, report *findings.Report) error {
	if len(report.Findings) == 0 {
		_, err := fmt.Fprintf(out, "Nothing found in %s and %s.\n", terminal.Count(report.Services, "Service"), terminal.Count(report.Nodes, "Node"))
		return err
	}
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "CHECK\tOBJECT\tFINDING")
	for _, f := range report.Findings {
		fmt.Fprintf(table, "%s\t%s\t%s\n", f.Code, terminal.Printable(f.Object()), terminal.Printable(f.Message))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	printRemedies(out, report.Findings)
	_, err := fmt.Fprintf(out, "\n%s in %s and %s.\n", terminal.Count(len(report.Findings), "finding"), terminal.Count(report.Services, "Service"), terminal.Count(report.Nodes, "Node"))
	return err
}
