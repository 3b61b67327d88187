package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-11a05479/kube-proxy/cmd/kube-proxy/app"
	"github.com/seed-11a05479/kube-proxy/pkg/apis/status/v1alpha1"
	"github.com/seed-11a05479/kube-proxy/pkg/inspect"
	"github.com/seed-11a05479/kube-proxy/pkg/status"
)

// exitOpen is the exit code if connections are still open.
const exitOpen = 3

// drainOptions are the flags of "kube-proxy drain" and "kube-proxy service drain".
type drainOptions struct {
	readerOptions
	service, endpoint string
	limit             time.Duration
	output            string
}

// drainHelp is a part of the help of both commands.
const drainHelp = `
It counts those whose endpoint this node chose, even if the endpoint is gone: TCP until both ends have closed, UDP flows and SCTP
associations until conntrack forgets them (UDP by default 2 minutes after the last packet).

Exit codes: 0 if none is open, 3 if some are, 1 or 2 if there is no answer, 1 also after a failed sync.`

func newDrainCommand() *cobra.Command {
	opts := &drainOptions{}
	command := &cobra.Command{
		Use:   "drain",
		Short: "Wait until no connection to a Service is open through this node",
		Long: `Count the connections to Services that are open through this node, and wait until there are none, or for --timeout. It neither ends
nor moves connections: use it after kubectl drain, or after the load balancer has removed the node.
` + drainHelp,
		Example: `  kube-proxy drain --timeout 10m
  kube-proxy drain --timeout 0 -o json
  kubectl -n kube-system exec kube-proxy-x7k2p -- kube-proxy drain`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return opts.run(cmd) },
	}
	opts.addFlags(command)
	return command
}

func newServiceDrainCommand() *cobra.Command {
	opts := &drainOptions{}
	command := &cobra.Command{
		Use:   "drain [NAMESPACE/]NAME",
		Short: "Wait until no connection to a Service, or to one of its endpoints, is open",
		Long: `Count the connections to a Service, or to one of its endpoints, that are open through this node, and wait until there are none, or
for --timeout. It neither ends nor moves connections. Other nodes have their own: ask each.
` + drainHelp,
		Example: `  kube-proxy service drain default/web --endpoint 10.244.1.5
  kube-proxy service drain web -n default --timeout 0`,
		Args: usageArgs(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			opts.service = opts.qualified(args[0])
			return opts.run(cmd)
		},
		ValidArgsFunction: opts.completeServices,
	}
	opts.addFlags(command)
	opts.addNamespace(command)
	command.Flags().StringVar(&opts.endpoint, "endpoint", "", "Only connections to the endpoint with this IP `address`, even if it is gone.")
	return command
}

// addFlags adds the flags that both commands have.
func (o *drainOptions) addFlags(command *cobra.Command) {
	o.addServer(command, inspect.TurnTimeout)
	command.Flags().DurationVar(&o.limit, "timeout", 5*time.Minute, "Wait for at most this `time`; 0 counts once.")
	outputFlag(command, &o.output, outputText, outputJSON, outputYAML)
}

// run counts and waits. The progress is on standard error.
func (o *drainOptions) run(cmd *cobra.Command) error {
	if o.limit < 0 {
		return app.UsageError{Err: fmt.Errorf("--timeout %s is negative", o.limit)}
	}
	if _, err := status.ParseOpenFilter(o.service, o.endpoint); err != nil {
		return app.UsageError{Err: err}
	}
	client, err := inspect.NewClient(o.server, o.timeout)
	if err != nil {
		return app.UsageError{Err: err}
	}
	open, err := inspect.Drain{
		Count: func(ctx context.Context) (*v1alpha1.OpenConnections, error) {
			return client.Open(ctx, o.service, o.endpoint)
		},
		Timeout: o.limit, Progress: progress(cmd), Out: cmd.ErrOrStderr(),
	}.Run(cmd.Context())
	if err != nil {
		return err
	}
	err = show(cmd, o.output, open, func() string { return printer(cmd).OpenConnections(open) })
	if err = errors.Join(err, failing(cmd, client, "")); err == nil && open.Connections > 0 {
		return app.ExitCode{Code: exitOpen}
	}
	return err
}
