package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-11a05479/kube-proxy/cmd/kube-proxy/app"
	"github.com/seed-11a05479/kube-proxy/pkg/apis/config"
	"github.com/seed-11a05479/kube-proxy/pkg/apis/status/v1alpha1"
	"github.com/seed-11a05479/kube-proxy/pkg/check"
	"github.com/seed-11a05479/kube-proxy/pkg/inspect"
	"github.com/seed-11a05479/kube-proxy/pkg/terminal"
)

// checkOptions are the flags of "kube-proxy check".
type checkOptions struct {
	before, strict                     bool
	wait                               time.Duration
	configFile, kubeconfig, mode, host string
	onNode
	skip   []string
	output string
}

func newCheckCommand() *cobra.Command {
	opts := &checkOptions{}
	command := &cobra.Command{
		Use:   "check [--pre] [--config FILE]",
		Short: "Check whether the proxy works on this node, or could work (--pre)",
		Long: `Check whether the proxy works on this node; with --pre, whether the node has everything that it needs. Each line is ok, warn or
fail, with what to do.

Run it as root in the node's network namespace. It changes nothing, but with --pre the kernel may load modules, and the command
binds ports for a moment.

Exit codes: 0 if nothing failed, 1 if something did, 2 if the command line cannot be used.`,
		Example: `  kube-proxy check --pre --config /var/lib/kube-proxy/config.conf
  kube-proxy check --proxy-mode nftables --wait 2m
  kube-proxy check --node node2 --config /var/lib/kube-proxy/config.conf -o json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if opts.node != "" {
				return opts.inPod(cmd, nil, clusterTimeout)
			}
			return runCheck(cmd, opts)
		},
	}
	flags := command.Flags()
	flags.BoolVar(&opts.before, "pre", false, "Check whether the proxy could run here.")
	flags.BoolVar(&opts.strict, "strict", false, "Let warnings fail.")
	flags.DurationVar(&opts.wait, "wait", 0, "Repeat the checks until none fails, for at most this `duration`.")
	flags.StringVar(&opts.configFile, "config", "", "Configuration `file` of the proxy, or a ConfigMap with one.")
	app.AddField(flags, &opts.kubeconfig, "kubeconfig", "clientConnection.kubeconfig", "Kubeconfig `file`, instead of the configuration's.")
	app.AddField(flags, &opts.mode, "proxy-mode", "mode", "Proxy `mode`, instead of the configuration's or the running proxy's: iptables, nftables.")
	app.AddField(flags, &opts.host, app.HostnameFlag, "hostnameOverride", "Node `name`, instead of the configuration's.")
	opts.addFlags(command, "Run the checks in the proxy's pod of this Node `name`, by pods/exec. Ctrl-C does not end them there.")
	flags.StringSliceVar(&opts.skip, "skip", nil, "Leave out these `groups` of checks: "+strings.Join(check.Groups(), ", ")+".")
	outputFlag(command, &opts.output, outputText, outputJSON, outputYAML)
	accept(command, "proxy-mode", servedModes())
	accept(command, "skip", check.Groups())
	command.AddCommand(newRehearseCommand())
	return command
}

// checker returns a Checker of the proxy that the flags describe. A configuration file that cannot be used is one of its findings.
func (o *checkOptions) checker(cmd *cobra.Command) (*check.Checker, error) {
	l, invalid, err := o.load(cmd)
	if err != nil {
		return nil, err
	}
	checker, err := newChecker(l, slices.Contains(o.skip, "api"))
	if err != nil {
		return nil, err
	}
	checker.ConfigFile, checker.ConfigError = o.configFile, invalid
	return checker, nil
}

// load returns the configuration of the proxy to check. invalid is why the configuration file is not used.
func (o *checkOptions) load(cmd *cobra.Command) (l *app.Loaded, invalid, err error) {
	if o.configFile != "" {
		if l, invalid = loadConfig(cmd, o.configFile); invalid == nil {
			o.override(l.Config)
			if invalid = l.Validate("linux"); invalid == nil {
				return l, nil, nil
			}
		}
	}
	l = &app.Loaded{Flags: cmd.Flags(), Config: app.DefaultConfig()}
	if !o.before && o.mode == "" {
		l.Config.Mode = config.ProxyMode(runningMode(cmd.Context(), inspect.DefaultServer))
	}
	o.override(l.Config)
	return l, invalid, l.Validate("linux")
}

// override sets what flags give instead of the configuration.
func (o *checkOptions) override(cfg *config.KubeProxyConfiguration) {
	cfg.Mode = cmp.Or(config.ProxyMode(o.mode), cfg.Mode)
	cfg.HostnameOverride = cmp.Or(o.host, cfg.HostnameOverride)
	cfg.ClientConnection.Kubeconfig = cmp.Or(o.kubeconfig, cfg.ClientConnection.Kubeconfig)
}

// runningMode returns the mode of the proxy at an address; if none answers, that of the rules here.
func runningMode(ctx context.Context, server string) string {
	if client, err := inspect.NewClient(server, time.Second); err == nil {
		if info, err := client.Info(ctx); err == nil {
			return info.Mode
		}
	}
	return modeHere(ctx)
}

func runCheck(cmd *cobra.Command, opts *checkOptions) error {
	if opts.wait < 0 {
		return app.UsageError{Err: fmt.Errorf("--wait %s is negative", opts.wait)}
	}
	if err := opts.check(cmd); err != nil {
		return err
	}
	checker, err := opts.checker(cmd)
	if err != nil {
		return app.ExitCode{Code: app.ExitUsage, Err: err}
	}
	name := "after"
	if checker.Stage = check.After; opts.before {
		checker.Stage, name = check.Before, "before"
	}
	results, _ := inspect.Wait[[]check.Result]{ // no question fails, and none is interrupted
		Ask:     func(context.Context) ([]check.Result, error) { return checker.Run(cmd.Context(), opts.skip...), nil },
		Done:    func(results []check.Result) bool { return check.Worst(results) != check.Fail },
		Timeout: opts.wait,
	}.Run(cmd.Context())
	worst := check.Worst(results)
	err = show(cmd, opts.output, struct {
		v1alpha1.TypeMeta
		Stage  string         `json:"stage"`
		Mode   string         `json:"mode"`
		Status check.Status   `json:"status"`
		Checks []check.Result `json:"checks"`
	}{v1alpha1.Meta(v1alpha1.KindNodeCheck), name, checker.Node.Mode, worst, results}, func() string { return checksText(results, printer(cmd).Width) })
	if err == nil && (worst == check.Fail || worst == check.Warn && opts.strict) {
		return app.ExitCode{Code: app.ExitFailure}
	}
	return err
}

// checksText has a line for each result, and what to do below it, for a terminal of a width.
func checksText(results []check.Result, width int) string {
	counts := map[check.Status]int{}
	table := &terminal.Table{Gap: 2, Width: width}
	for _, r := range results {
		counts[r.Status]++
		table.Add(string(r.Status), r.Group+"/"+r.Check, r.Message)
		if r.Fix != "" {
			table.Add("", "", "  "+r.Fix)
		}
	}
	return fmt.Sprintf("%s%d ok, %d warn, %d fail\n", table, counts[check.OK], counts[check.Warn], counts[check.Fail])
}
