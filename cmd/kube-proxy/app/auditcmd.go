package app

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"k8s.io/component-base/term"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/config"
	"github.com/seed-11a05479/kube-proxy/pkg/apis/config/v1alpha2"
	"github.com/seed-11a05479/kube-proxy/pkg/audit"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// auditOptions is what the command line of "kube-proxy audit" says.
type auditOptions struct {
	kubeconfig, context string
	manifests           string
	configFile          string
	output              string
	skip                []string
}

// The exit codes of "kube-proxy audit", fit for CI.
const (
	exitFindings      = 1
	exitCouldNotAudit = 2
)

const (
	outputTable     = "table"
	outputJSON      = "json"
	outputManifests = "manifests"
)

func newAuditCommand() *cobra.Command {
	opts := &auditOptions{}
	command := &cobra.Command{
		Use:   "audit [--kubeconfig FILE | --manifests DIR] [--config FILE]",
		Short: "Find Services and Nodes that rely on what is not served, or not for long",
		Long: `Looks at every Service and Node of a cluster, or of manifests, and finds

  external IPs, which are not served unless a feature gate says so, and what to write instead;
  load balancer IPs that were asked for and never acknowledged;
  node ports that iptables and nftables modes serve on different addresses;
  nodes that report the version of a kube-proxy that they do not know;
  what is deprecated in a configuration file (--config).

It only reads: listing Services and Nodes is all it needs (build/manifests/audit-role.yaml).

Exits with 0 if there is nothing to tell, with 1 if there are findings, and with 2 if it could not look.`,
		Example: `  kube-proxy audit
  kube-proxy audit --kubeconfig ~/.kube/config --config /var/lib/kube-proxy/config.conf -o json
  kube-proxy audit -o manifests > instead.yaml
  kubectl get services,nodes -A -o yaml | kube-proxy audit --manifests - --skip NodePortsDifferByMode`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return runAudit(cmd, opts) },
	}
	flags := command.Flags()
	flags.StringVar(&opts.kubeconfig, "kubeconfig", "", "kubeconfig `file`. By default as kubectl finds it, or a pod's service account.")
	flags.StringVar(&opts.context, "context", "", "`name` of the kubeconfig's context to use.")
	flags.StringVar(&opts.manifests, "manifests", "", "`directory` of manifests, or one file, to look at in place of a cluster; - is standard input. Other kinds are passed over.")
	flags.StringVar(&opts.configFile, "config", "", "configuration `file` to look at, too. It also tells what a change of mode means for node ports.")
	flags.StringVarP(&opts.output, "output", "o", outputTable, "`format`: table, json, or manifests: those to write instead.")
	flags.StringSliceVar(&opts.skip, "skip", nil, "Comma-separated `checks` to leave out: "+strings.Join(checkNames(), ", ")+".")
	_ = command.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{outputTable, outputJSON, outputManifests}, cobra.ShellCompDirectiveNoFileComp))
	_ = command.RegisterFlagCompletionFunc("skip", cobra.FixedCompletions(checkNames(), cobra.ShellCompDirectiveNoFileComp))
	return command
}

func checkNames() []string {
	var names []string
	for _, check := range audit.Checks() {
		names = append(names, string(check))
	}
	return names
}

// check refuses a command line that cannot be meant.
func (o *auditOptions) check() error {
	if !slices.Contains([]string{outputTable, outputJSON, outputManifests}, o.output) {
		return usageError{fmt.Errorf("--output %q is none of table, json and manifests", o.output)}
	}
	if o.manifests != "" && (o.kubeconfig != "" || o.context != "") {
		return usageError{errors.New("--manifests and --kubeconfig or --context exclude each other: objects come from one place")}
	}
	for _, name := range o.skip {
		if !slices.Contains(checkNames(), name) {
			return usageError{fmt.Errorf("--skip: there is no check %q; there are %s", name, strings.Join(checkNames(), ", "))}
		}
	}
	return nil
}

// runAudit looks, prints, and tells by its exit code.
func runAudit(cmd *cobra.Command, opts *auditOptions) error {
	if err := opts.check(); err != nil {
		return err
	}
	report, err := opts.audit(cmd)
	if err != nil {
		return exitCode{exitCouldNotAudit, fmt.Errorf("could not look: %w", err)}
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
	if err != nil {
		return exitCode{exitCouldNotAudit, err}
	}
	if len(report.Findings) > 0 {
		return exitCode{exitFindings, nil}
	}
	return nil
}

// audit looks at everything that the command line names.
func (o *auditOptions) audit(cmd *cobra.Command) (*audit.Report, error) {
	// Without a file, the defaults of kube-proxy are taken to be in force: iptables mode, node ports everywhere.
	options := audit.Options{NodePortsOnAll: true, NodePortsOnLocalhost: audit.LocalhostNone}
	for _, name := range o.skip {
		options.Skip = append(options.Skip, audit.Check(name))
	}
	var deprecated []audit.Finding
	if o.configFile != "" {
		l, err := loadConfig(cmd, o.configFile)
		if err != nil {
			return nil, err
		}
		options.NodePortsOnAll, options.NodePortsOnLocalhost = nodePortsByMode(l.cfg, l.features.Gates.KubeProxyNFTablesLocalhostNodePorts)
		deprecated = configFindings(o.configFile, l)
	}
	auditor := audit.New(options)
	for _, finding := range deprecated {
		auditor.Add(finding)
	}
	var err error
	if o.manifests != "" {
		err = auditManifests(o.manifests, cmd.InOrStdin(), auditor)
	} else {
		progress := &progress{}
		if _, _, notTerminal := term.TerminalSize(cmd.ErrOrStderr()); notTerminal == nil {
			progress.out = cmd.ErrOrStderr()
		}
		err = o.auditCluster(cmd.Context(), auditor, progress)
	}
	if err != nil {
		return nil, err
	}
	return auditor.Report(), nil
}

// nodePortsByMode tells what a change from iptables to nftables mode would mean for node ports: whether they are now on
// all addresses since none are named, and what becomes of those on 127.0.0.1. nftablesLocalhost is the gate that serves TCP
// there in nftables mode as well, where a loopback range is named.
func nodePortsByMode(cfg *config.KubeProxyConfiguration, nftablesLocalhost bool) (all bool, localhost audit.Localhost) {
	if cfg.Mode == config.ProxyModeNFTables {
		return false, audit.LocalhostSame // the change has been made
	}
	selected, err := nodePortAddresses(cfg.NodePortAddresses)
	if err != nil {
		return false, audit.LocalhostSame // validation has said so
	}
	all = len(cfg.NodePortAddresses) == 0
	within := all || slices.ContainsFunc(selected.CIDRs, func(cidr netip.Prefix) bool {
		return cidr.Addr().Is4() && (cidr.Bits() == 0 || cidr.Addr().IsLoopback())
	})
	switch {
	case !within || !cfg.IPTables.LocalhostNodePorts:
		return all, audit.LocalhostSame
	case nftablesLocalhost && slices.Contains(loopbackFamilies(cfg.NodePortAddresses), cluster.IPv4):
		return all, audit.LocalhostTCP
	}
	return all, audit.LocalhostNone
}

// configFindings are what is deprecated in a file.
func configFindings(path string, l *loaded) []audit.Finding {
	var all []audit.Finding
	add := func(message string) {
		all = append(all, audit.Finding{Check: audit.Configuration, Kind: "File", Name: path, Message: message})
	}
	if l.file.Version != v1alpha2.Version {
		add(fmt.Sprintf("version %s is not the latest, %s", l.file.Version, v1alpha2.Version))
	}
	for _, warning := range l.warnings {
		add(strings.TrimPrefix(warning, path+":"))
	}
	for _, loss := range l.file.Dropped {
		add(loss.String())
	}
	return all
}

func printReportJSON(out io.Writer, report *audit.Report) error {
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(struct {
		Kind    string `json:"kind"`
		Version string `json:"version"`
		*audit.Report
	}{"AuditReport", "v1", report})
}

// printInstead prints manifests only, to be looked at, changed and applied.
func printInstead(out io.Writer, report *audit.Report) error {
	for _, finding := range report.Findings {
		if finding.Manifest != "" {
			if _, err := fmt.Fprintf(out, "---\n%s", finding.Manifest); err != nil {
				return err
			}
		}
	}
	return nil
}

// printReport prints a table for people, and what to do about each kind of finding.
func printReport(out io.Writer, report *audit.Report) error {
	if len(report.Findings) == 0 {
		_, err := fmt.Fprintf(out, "Nothing found in %d Services and %d Nodes.\n", report.Services, report.Nodes)
		return err
	}
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "CHECK\tOBJECT\tFINDING")
	var checks []audit.Check
	for _, f := range report.Findings {
		object := f.Kind + " " + f.Name
		if f.Namespace != "" {
			object = f.Kind + " " + f.Namespace + "/" + f.Name
		}
		fmt.Fprintf(table, "%s\t%s\t%s\n", f.Check, object, f.Message)
		if !slices.Contains(checks, f.Check) {
			checks = append(checks, f.Check)
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, check := range checks {
		fmt.Fprintf(out, "\n%s\n%s\n", check, wrap(check.Remedy(), 100))
	}
	_, err := fmt.Fprintf(out, "\n%d findings in %d Services and %d Nodes.\n", len(report.Findings), report.Services, report.Nodes)
	return err
}
