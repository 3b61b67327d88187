//go:build linux

package app

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/spf13/cobra"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/config"
	"github.com/seed-11a05479/kube-proxy/pkg/check"
	"github.com/seed-11a05479/kube-proxy/pkg/check/rehearsal"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/scratch"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
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
		Short: "Write the rules of a mode in a network namespace that nobody uses",
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
	here, err := scratch.Own()
	if err != nil {
		return err
	}
	links, err := net.Interfaces()
	if err != nil {
		return err
	}
	if o.outside == "" || string(here) == o.outside || len(links) != 1 { // a new one has the loopback interface only
		return usageError{errors.New("it would write rules in the network namespace of the node; run kube-proxy check --pre")}
	}
	chosen, err := chooseDataplane(config.ProxyMode(o.mode))
	if err != nil {
		return err
	}
	var families []cluster.Family
	for _, family := range []cluster.Family{cluster.IPv4, cluster.IPv6} {
		for _, name := range o.families {
			if name == family.String() {
				families = append(families, family)
			}
		}
	}
	features := nftFeatures
	if chosen.mode == config.ProxyModeIPTables {
		features = o.iptablesFeatures
	}
	cfg := newOptions().flags
	if len(families) == 0 {
		return usageError{errors.New("--family is missing")}
	}
	steps := rehearsal.Run(cmd.Context(), rehearsal.Config{
		Families: families, Plan: &plan.Options{ServeExternalIPs: true}, Features: features,
		Open: func(ctx context.Context, family cluster.Family) (backend.Backend, error) {
			return chosen.open(ctx, cfg, []cluster.Family{family})
		},
	})
	return printObject(cmd.OutOrStdout(), outputJSON, steps)
}

func nftFeatures(ctx context.Context, family cluster.Family) ([]check.Step, error) {
	probe := func() ([]nft.Feature, error) { return nft.Probe(ctx, "ip") }
	if family == cluster.IPv6 {
		probe = func() ([]nft.Feature, error) { return nft.Probe(ctx, "ip6") }
	}
	found, err := probe()
	var steps []check.Step
	for _, f := range found {
		steps = append(steps, check.Step{Name: f.Name, Module: f.Module, Error: errorText(f.Err)})
	}
	return steps, err
}

// iptablesFeatures also creates the chain by which the backend finds the variant, as kubelet does.
func (o *rehearseOptions) iptablesFeatures(ctx context.Context, family cluster.Family) (steps []check.Step, err error) {
	tables, err := ipt.Open(ctx, tablesFamily(family), ipt.Variant(o.variant))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, tables.Close()) }()
	for _, f := range ipt.Probe(ctx, tables) {
		steps = append(steps, check.Step{Name: f.Name, Module: f.Module, Error: errorText(f.Err)})
	}
	if err := tables.Restore(ctx, "*mangle\n:KUBE-IPTABLES-HINT - [0:0]\nCOMMIT\n"); err != nil {
		return steps, fmt.Errorf("choose the variant %s: %w", o.variant, err)
	}
	return steps, nil
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
