package cli

import (
	"cmp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/seed-11a05479/kube-proxy/cmd/kube-proxy/app"
	"github.com/seed-11a05479/kube-proxy/pkg/apis/status/v1alpha1"
	"github.com/seed-11a05479/kube-proxy/pkg/inspect"
)

// exitDiffers is the exit code of "kube-proxy render --diff" if there are differences.
const exitDiffers = 3

// renderOptions are the flags of "kube-proxy render".
type renderOptions struct {
	readerOptions
	compare bool
	output  string
}

func newRenderCommand() *cobra.Command {
	opts := &renderOptions{readerOptions: readerOptions{timeout: inspect.TurnTimeout}}
	command := &cobra.Command{
		Use:   "render [--mode MODE] [--diff]",
		Short: "Print the rules that the kernel should have, or what differs",
		Long: `Print the rules that the kernel should have, as nft -f or iptables-restore --noflush loads them, without counters and the clients
of session affinity. For another --mode, a running proxy uses the defaults of its own mode, such as that of nodePortAddresses.

--diff lists what differs from the kernel's rules (+ is missing in the kernel, - is only there) and, for a running proxy, what
"kube-proxy drift" lists. It needs nft to read nftables chains, and CAP_NET_ADMIN if no proxy runs.
` + readerHelp + `

Exit codes: 0, 3 if --diff finds a difference, 1 or 2 if there is no answer, 1 also after a failed sync unless --diff finds a difference.`,
		Example: `  kube-proxy render --diff
  kube-proxy render --mode nftables --manifests examples --node node1`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return opts.run(cmd) },
	}
	opts.addFlags(command)
	command.Flags().StringVar(&opts.mode, "mode", "", "Proxy `mode`: "+strings.Join(servedModes(), ", ")+". Default: the proxy's own.")
	accept(command, "mode", servedModes())
	command.Flags().BoolVar(&opts.compare, "diff", false, "Compare the rules with the kernel's.")
	outputFlag(command, &opts.output, outputText, outputJSON, outputYAML)
	return command
}

// run prints rules or differences.
func (o *renderOptions) run(cmd *cobra.Command) error {
	o.here = o.compare
	reader, err := o.open(cmd)
	if err != nil {
		return err
	}
	if o.compare {
		return o.runDiff(cmd, reader)
	}
	rules, err := reader.Ruleset(cmd.Context(), o.mode)
	if err != nil {
		return err
	}
	err = show(cmd, o.output, rules, func() string { return printer(cmd).Ruleset(rules) })
	return cmp.Or(err, failing(cmd, reader, ""))
}

// runDiff prints differences and, of the rules of a running proxy, repairs.
func (o *renderOptions) runDiff(cmd *cobra.Command, reader inspect.Reader) error {
	found, err := reader.Compare(cmd.Context(), o.mode)
	if err != nil {
		return err
	}
	repairs := &v1alpha1.RepairList{}
	if o.running() && o.mode == "" {
		if repairs, err = reader.Repairs(cmd.Context()); err != nil {
			return err
		}
	}
	both := struct {
		*v1alpha1.Comparison
		Repairs []v1alpha1.Repair `json:"repairs,omitempty"`
	}{found, repairs.Items}
	err = show(cmd, o.output, both, func() string {
		text := printer(cmd).Comparison(found)
		if len(repairs.Items) > 0 {
			text += "\nOther programs changed, and the proxy repaired:\n" + printer(cmd).Repairs(repairs)
		}
		return text
	})
	if err != nil {
		return err
	}
	err = failing(cmd, reader, "")
	if len(found.Items) > 0 { // also after a failed sync, which is often why they differ
		return app.ExitCode{Code: exitDiffers, Err: err}
	}
	return err
}

// newDriftCommand returns the part of "kube-proxy render --diff" about the past: it reads no rules, and no repair changes its exit
// code.
func newDriftCommand() *cobra.Command {
	opts := &renderOptions{}
	command := &cobra.Command{
		Use:   "drift",
		Short: "Show which rules other programs changed, and the proxy repaired",
		Long: `List the last 100 times that another program changed the rules of the proxy on this node, and the proxy repaired them: when, what,
and which program, if the kernel reports it.

Exit codes: 0, 1 or 2 if there is no answer, 1 also after a failed sync.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return opts.runDrift(cmd) },
	}
	opts.addServer(command, inspect.DefaultTimeout)
	outputFlag(command, &opts.output, outputText, outputJSON, outputYAML)
	return command
}

// runDrift prints repairs.
func (o *renderOptions) runDrift(cmd *cobra.Command) error {
	reader, err := o.open(cmd)
	if err != nil {
		return err
	}
	repairs, err := reader.Repairs(cmd.Context())
	if err != nil {
		return err
	}
	err = show(cmd, o.output, repairs, func() string { return printer(cmd).Repairs(repairs) })
	return cmp.Or(err, failing(cmd, reader, ""))
}
