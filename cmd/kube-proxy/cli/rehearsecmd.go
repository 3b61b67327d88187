//go:build linux

package cli

import (
	"errors"
	"net"
	"slices"

	"github.com/spf13/cobra"

	"github.com/seed-11a05479/kube-proxy/cmd/kube-proxy/app"
	"github.com/seed-11a05479/kube-proxy/pkg/apis/config"
	"github.com/seed-11a05479/kube-proxy/pkg/check"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/host"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// rehearseOptions are the flags of "kube-proxy check rehearse".
type rehearseOptions struct {
	outside, mode, variant string
	families               []string
}

// newRehearseCommand builds the command that "kube-proxy check --pre" runs in a network namespace of its own: it writes rules.
func newRehearseCommand() *cobra.Command {
	opts := &rehearseOptions{}
	command := &cobra.Command{
		Use: "rehearse", Hidden: true, Args: noArgs,
		Short: "Write the rules of a mode into an unused network namespace",
		RunE:  func(cmd *cobra.Command, _ []string) error { return opts.run(cmd) },
	}
	flags := command.Flags()
	flags.StringVar(&opts.outside, "outside", "", "network namespace in which it must not run.")
	flags.StringVar(&opts.mode, "proxy-mode", "", "proxy mode.")
	flags.StringVar(&opts.variant, "variant", "", "variant of iptables.")
	flags.StringSliceVar(&opts.families, "family", nil, "IP families.")
	return command
}

func (o *rehearseOptions) run(cmd *cobra.Command) error {
	here, err := host.NetworkNamespace()
	if err != nil {
		return err
	}
	links, err := net.Interfaces()
	if err != nil {
		return err
	}
	if o.outside == "" || here == o.outside || slices.ContainsFunc(links, connects) {
		return app.UsageError{Err: errors.New("it would write rules in the network namespace of the node; run kube-proxy check --pre")}
	}
	cfg := app.DefaultConfig()
	cfg.Mode = config.ProxyMode(o.mode)
	chosen, _, err := app.ChooseMode(cfg, backend.CounterLimits{})
	if err != nil {
		return err
	}
	rehearsal := &check.Rehearsal{Families: o.families, Plan: &plan.Options{ServeExternalIPs: true}, Mode: chosen, Variant: o.variant}
	steps, err := rehearsal.Run(cmd.Context())
	if err != nil {
		return err
	}
	return printObject(cmd.OutOrStdout(), outputJSON, steps)
}

// connects reports whether a network interface connects its namespace to anything. In a new namespace none does: it has the loopback
// interface, and the kernel adds one for each loaded tunnel module (tunl0, sit0), which is down.
func connects(link net.Interface) bool {
	return link.Flags&net.FlagLoopback == 0 && link.Flags&net.FlagUp != 0
}
