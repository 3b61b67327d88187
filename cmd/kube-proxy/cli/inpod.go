package cli

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/seed-11a05479/kube-proxy/cmd/kube-proxy/app"
	"github.com/seed-11a05479/kube-proxy/pkg/fleet"
)

// onNode chooses the proxy's pod of another node, in the namespace of the proxies.
type onNode struct {
	node, proxies, context string
	// finds means that the command needs the cluster of the context also without a node.
	finds bool
}

// addFlags adds the flags to a command.
func (e *onNode) addFlags(command *cobra.Command, usage string) {
	flags := command.Flags()
	flags.StringVar(&e.node, "node", "", usage)
	flags.StringVar(&e.proxies, "proxy-namespace", proxyNamespace, "The `namespace` of the proxy's pods, with --node.")
	addContext(command, &e.context)
	_ = command.RegisterFlagCompletionFunc("node", e.completeNodes)
}

// completeNodes lists the nodes with a proxy's pod.
func (e *onNode) completeNodes(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
	defer cancel()
	of, err := e.fleet(0)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return of.Nodes(ctx), cobra.ShellCompDirectiveNoFileComp
}

// check rejects flags that have no effect: this node is not to be taken for one of another cluster.
func (e *onNode) check(cmd *cobra.Command) error {
	if e.node == "" && (cmd.Flags().Changed("context") && !e.finds || cmd.Flags().Changed("proxy-namespace")) {
		return app.UsageError{Err: errors.New("--context and --proxy-namespace need --node: without it, this node is looked at")}
	}
	return nil
}

// fleet returns the fleet with this proxy only. timeout bounds what is asked; 0 is that of other requests to the API server.
func (e *onNode) fleet(timeout time.Duration) (*fleet.Fleet, error) {
	config, err := restConfig("", e.context, "kube-proxy")
	if err != nil {
		return nil, err
	}
	config.Timeout = cmp.Or(timeout, config.Timeout)
	return fleet.New(config, fleet.Options{Selection: fleet.Selection{Namespace: e.proxies, Node: e.node}, Timeout: timeout})
}

// inPod runs a command in that pod, because it needs that node's kernel, and ends with its exit code. What it prints is the pod's.
func (e *onNode) inPod(cmd *cobra.Command, args []string) error {
	words := strings.Fields(cmd.CommandPath())
	cmd.Flags().Visit(func(f *pflag.Flag) {
		switch value := f.Value.String(); {
		case slices.Contains([]string{"node", "proxy-namespace", "context"}, f.Name):
		case f.Value.Type() == "stringSlice":
			words = append(words, "--"+f.Name+"="+strings.Trim(value, "[]"))
		default:
			words = append(words, "--"+f.Name+"="+value)
		}
	})
	of, err := e.fleet(0)
	if err != nil {
		return err
	}
	code, err := of.Run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr(), append(words, args...)...)
	if err == nil && code != 0 {
		return app.ExitCode{Code: code}
	}
	return err
}
