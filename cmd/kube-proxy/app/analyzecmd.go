package app

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/seed-11a05479/kube-proxy/pkg/findings"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
	"github.com/seed-11a05479/kube-proxy/pkg/terminal"
)

// analyzeOptions are the flags of "kube-proxy analyze".
type analyzeOptions struct {
	from          objectsFrom
	configFile    string
	namespaces    []string
	allNamespaces bool
	groups, skip  []string
	failOn        string
	output        string
	checkOutput   func() error
}

// failNever is a value of --fail-on.
const failNever = "never"

func newAnalyzeCommand() *cobra.Command {
	opts := &analyzeOptions{from: objectsFrom{userAgent: "kube-proxy-analyze"}}
	command := &cobra.Command{
		Use:   "analyze [--kubeconfig FILE | --manifests DIR] [-n NAMESPACE] [--skip CODES]",
		Short: "Find Services and EndpointSlices that do not work or may not be intended",
		Long: `Reads the Services, EndpointSlices, Nodes and ServiceCIDRs of a cluster, or of manifests, and reports what does not work or
may not be intended: port names that do not match, traffic policies without endpoints, contested addresses, source ranges
of one IP family, endpoints on addresses of Services, and more. docs/findings.md describes each code. The rules are those
of the proxy itself; --config names a configuration file whose settings apply.

"kube-proxy audit" is the group upgrade, which is left out by default.

It only reads: it needs to list Services, EndpointSlices, Nodes and ServiceCIDRs (build/manifests/analyze-role.yaml).

Exits with 0 if there is no finding of the severity of --fail-on or worse, with 1 if there is, and with 2 if not everything
could be read.`,
		Example: `  kube-proxy analyze
  kube-proxy analyze -n shop --fail-on error -o json
  kubectl get services,endpointslices,nodes -A -o yaml | kube-proxy analyze --manifests -`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runAnalyze(cmd, opts) },
	}
	flags := command.Flags()
	opts.from.addFlags(command)
	flags.StringVar(&opts.configFile, "config", "", "configuration `file` of the proxy; also a ConfigMap with one.")
	flags.StringSliceVarP(&opts.namespaces, "namespace", "n", nil, "Report only findings in these `namespaces`. All objects are read in any case.")
	flags.BoolVarP(&opts.allNamespaces, "all-namespaces", "A", false, "Report findings in all namespaces. This is the default.")
	flags.StringSliceVar(&opts.groups, "group", names([]findings.Group{findings.Endpoints, findings.Addresses, findings.Nodes}),
		"Comma-separated `groups` to check: "+strings.Join(names(findings.Groups()), ", ")+".")
	flags.StringSliceVar(&opts.skip, "skip", nil, "Comma-separated `codes` to leave out; see docs/findings.md.")
	flags.StringVar(&opts.failOn, "fail-on", string(findings.Warning), "least `severity` that makes the exit code 1: "+strings.Join(failOns(), ", ")+".")
	opts.checkOutput = outputFlag(command, &opts.output, outputTable, outputJSON, outputYAML)
	for flag, values := range map[string][]string{"group": names(findings.Groups()), "skip": names(findings.Codes()), "fail-on": failOns()} {
		_ = command.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	}
	return command
}

func failOns() []string {
	return append([]string{failNever}, names(findings.Severities())...)
}

// check returns a usage error if flags contradict each other or have unknown values.
func (o *analyzeOptions) check() error {
	if err := o.checkOutput(); err != nil {
		return err
	}
	if err := o.from.check(); err != nil {
		return err
	}
	if o.allNamespaces && len(o.namespaces) > 0 {
		return usageError{errors.New("-A and -n exclude each other")}
	}
	if err := errors.Join(checkOneOf("fail-on", failOns(), o.failOn), checkOneOf("group", names(findings.Groups()), o.groups...)); err != nil {
		return err
	}
	for _, name := range o.skip {
		if !slices.Contains(names(findings.Codes()), name) {
			return usageError{fmt.Errorf("--skip: there is no code %q; docs/findings.md lists all", name)}
		}
	}
	return nil
}

// findings returns the options of the Analyzer.
func (o *analyzeOptions) findings(cmd *cobra.Command) (options findings.Options, deprecated []findings.Finding, err error) {
	options.Namespaces = o.namespaces
	for _, group := range o.groups {
		options.Groups = append(options.Groups, findings.Group(group))
	}
	for _, code := range o.skip {
		options.Skip = append(options.Skip, findings.Code(code))
	}
	options.Plan = &plan.Options{}
	if o.configFile == "" {
		return options, nil, nil
	}
	l, err := loadValidConfig(cmd, o.configFile)
	if err != nil {
		return options, nil, err
	}
	options.Plan, err = planOptions(l.cfg, l.features.Gates)
	return options, configFindings(o.configFile, l), err
}

func runAnalyze(cmd *cobra.Command, opts *analyzeOptions) error {
	if err := opts.check(); err != nil {
		return err
	}
	options, deprecated, err := opts.findings(cmd)
	if err != nil {
		return exitCode{exitUnreadable, fmt.Errorf("analyze: %w", err)}
	}
	analyzer := findings.New(options)
	for _, f := range deprecated {
		analyzer.Add(f)
	}
	bad, err := opts.from.read(cmd, analyzer)
	if err != nil {
		return exitCode{exitUnreadable, fmt.Errorf("analyze: %w", err)}
	}
	report := analyzer.Report()
	slices.SortStableFunc(report.Findings, func(a, b findings.Finding) int {
		return slices.Index(findings.Severities(), a.Severity) - slices.Index(findings.Severities(), b.Severity)
	})
	if opts.output == outputTable {
		err = printAnalysis(cmd.OutOrStdout(), report)
	} else {
		err = printAnalysisObject(cmd.OutOrStdout(), opts.output, report)
	}
	switch {
	case err != nil:
		return exitCode{exitUnreadable, err}
	case bad != nil:
		return exitCode{exitUnreadable, fmt.Errorf("these objects could not be read and were not analyzed:\n%w", bad)}
	case slices.ContainsFunc(report.Findings, func(f findings.Finding) bool {
		return opts.failOn != failNever && f.Severity.AtLeast(findings.Severity(opts.failOn))
	}):
		return exitCode{exitFindings, nil}
	}
	return nil
}

// printAnalysis prints a table, the worst findings first, and what to do about each code.
func printAnalysis(out io.Writer, report *findings.Report) error {
	looked := fmt.Sprintf("%s, %s and %s", terminal.Count(report.Services, "Service"), terminal.Count(report.EndpointSlices, "EndpointSlice"), terminal.Count(report.Nodes, "Node"))
	if len(report.Findings) == 0 {
		_, err := fmt.Fprintf(out, "Nothing found in %s.\n", looked)
		return err
	}
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "SEVERITY\tCODE\tOBJECT\tFINDING")
	for _, f := range report.Findings {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", f.Severity, f.Code, terminal.Printable(f.Object()), terminal.Printable(f.Message))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	printRemedies(out, report.Findings)
	_, err := fmt.Fprintf(out, "\n%s in %s.\n", terminal.Count(len(report.Findings), "finding"), looked)
	return err
}

func printAnalysisObject(out io.Writer, format string, report *findings.Report) error {
	type hinted struct {
		findings.Finding
		Hint string `json:"hint"`
	}
	all := make([]hinted, len(report.Findings))
	for i, f := range report.Findings {
		d, _ := findings.Define(f.Code)
		all[i] = hinted{f, d.Remedy}
	}
	return printObject(out, format, struct {
		Kind           string   `json:"kind"`
		Version        string   `json:"version"`
		Services       int      `json:"services"`
		EndpointSlices int      `json:"endpointSlices"`
		Nodes          int      `json:"nodes"`
		Findings       []hinted `json:"findings"`
	}{"Analysis", "v1", report.Services, report.EndpointSlices, report.Nodes, all})
}
