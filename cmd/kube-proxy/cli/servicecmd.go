package cli

import (
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-11a05479/kube-proxy/cmd/kube-proxy/app"
	"github.com/seed-11a05479/kube-proxy/pkg/apis/status/v1alpha1"
	"github.com/seed-11a05479/kube-proxy/pkg/inspect"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/status"
)

// serviceOptions are the flags of "kube-proxy service ...".
type serviceOptions struct {
	readerOptions
	all       bool
	noHeaders bool
	address   string
	output    string
	watch     bool
	interval  time.Duration
	// counters are those of the round before.
	counters *inspect.Counters
}

// serviceExits is the end of the help of "list" and "describe".
const serviceExits = "\n\nExit codes: 0, 1 or 2 if there is no answer, 1 also after a failed sync, but not with --watch."

func newServiceCommand() *cobra.Command {
	command := &cobra.Command{
		Use:     "service",
		Aliases: []string{"services", "svc"},
		Short:   "Show Services as this node serves them",
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	command.AddCommand(newServiceListCommand(), newServiceDescribeCommand(), newServiceDrainCommand())
	return command
}

func newServiceListCommand() *cobra.Command {
	opts := &serviceOptions{}
	command := &cobra.Command{
		Use:     "list [-A | -n NAMESPACE]",
		Aliases: []string{"get", "ls"},
		Short:   "List Services with their endpoints and problems",
		Long: `List Services with the numbers of ready and of all endpoints, why connections to some of them fail on this node, and EndpointSlices
whose Service is not served. -o wide adds connections, counted since their rule last changed. --watch shows the busiest Services
first.
` + readerHelp + serviceExits,
		Example: `  kube-proxy service list -A -o wide
  kube-proxy service list --address 10.96.0.10
  kube-proxy service list -A --node node2`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return opts.run(cmd, opts.list) },
	}
	opts.addFlags(command, outputTable, outputWide, outputName, outputJSON, outputYAML)
	opts.addNamespace(command)
	command.Flags().BoolVar(&opts.noHeaders, "no-headers", false, "Print no column headers.")
	command.Flags().BoolVarP(&opts.all, "all-namespaces", "A", false, "List all namespaces.")
	command.Flags().StringVar(&opts.address, "address", "", "List the Services of all namespaces that have this IP `address`, an endpoint with it, or node ports on it.")
	return command
}

func newServiceDescribeCommand() *cobra.Command {
	opts := &serviceOptions{}
	command := &cobra.Command{
		Use:   "describe [NAMESPACE/]NAME",
		Short: "Show one Service with its endpoints, and why some are left out",
		Long: `Show what happens to connections to each address of a Service, which endpoints get them and why others do not, how many the kernel
has counted, and how long the last change took to program.
` + readerHelp + serviceExits,
		Example: `  kube-proxy service describe default/web
  kube-proxy service describe cart -n shop --manifests examples --node node1`,
		Args: usageArgs(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			name, ok := cluster.ParseServiceName(opts.qualified(args[0]))
			if !ok {
				return app.UsageError{Err: fmt.Errorf("%q does not name a Service: write NAMESPACE/NAME", args[0])}
			}
			return opts.run(cmd, func(cmd *cobra.Command, from inspect.Reader) error { return opts.describe(cmd, from, name) })
		},
	}
	opts.addFlags(command, outputTable, outputName, outputJSON, outputYAML)
	opts.addNamespace(command)
	command.ValidArgsFunction = opts.completeServices
	return command
}

// addFlags adds the flags that both commands have, with the formats of the output.
func (o *serviceOptions) addFlags(command *cobra.Command, formats ...string) {
	o.readerOptions.addFlags(command)
	command.Flags().BoolVarP(&o.watch, "watch", "w", false, "Repeat, with connections per second.")
	command.Flags().DurationVar(&o.interval, "interval", 2*time.Second, "Repeat --watch after this `time`.")
	outputFlag(command, &o.output, formats...)
}

// run reads and prints once, or with --watch repeatedly.
func (o *serviceOptions) run(cmd *cobra.Command, round func(*cobra.Command, inspect.Reader) error) error {
	if err := o.checkFlags(); err != nil {
		return err
	}
	from, err := o.open(cmd)
	if err != nil {
		return err
	}
	if !o.watch {
		if err := round(cmd, from); err != nil {
			return err
		}
		return failing(cmd, from, "")
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	cmd.SetContext(ctx)
	out := cmd.OutOrStdout()
	failed := func(err error) { printLines(cmd.ErrOrStderr(), "error: ", err) } // it may end while this is watched
	watch := inspect.Watch{Interval: o.interval, Out: out, Separator: o.separator(), Terminal: o.textual() && isTerminal(out), Failed: failed}
	return watch.Run(ctx, func() error {
		if err := round(cmd, from); err != nil {
			return err
		}
		if err := failing(cmd, from, ""); err != nil && ctx.Err() == nil { // the end of the watch is no error
			failed(err)
		}
		return nil
	})
}

// rates returns the rates since the round before, of counters that were read at a time; nil if there was none, or if failed says why they could
// not be read: then the next round compares with the last one that did not fail.
func (o *serviceOptions) rates(failed string, at time.Time, services ...v1alpha1.Service) *inspect.Rates {
	if failed != "" {
		return nil
	}
	earlier := o.counters
	o.counters = inspect.CountersOf(at, services...)
	return o.counters.Since(earlier)
}

// checkFlags returns a usage error for flags that contradict each other.
func (o *serviceOptions) checkFlags() error {
	switch {
	case o.interval <= 0:
		return app.UsageError{Err: fmt.Errorf("--interval %s is not positive", o.interval)}
	case o.watch && !o.running():
		return app.UsageError{Err: fmt.Errorf("--watch needs a running proxy: objects of files or a cluster are read once")}
	}
	return nil
}

// textual reports whether the output is for people.
func (o *serviceOptions) textual() bool { return o.output == outputTable || o.output == outputWide }

// separator is what stands between two rounds of --watch. It is never empty, so that a full disk ends them.
func (o *serviceOptions) separator() string {
	if o.output == outputYAML {
		return "---\n"
	}
	return "\n"
}

// list shows the list.
func (o *serviceOptions) list(cmd *cobra.Command, from inspect.Reader) error {
	namespace := o.namespace
	if o.all || o.address != "" {
		namespace = ""
	}
	filter, err := status.ParseFilter(namespace, o.address)
	if err != nil {
		return app.UsageError{Err: fmt.Errorf("--address: %w", err)}
	}
	services, err := from.Services(cmd.Context(), filter, o.output != outputTable || o.watch)
	if err != nil {
		return err
	}
	if o.textual() && len(services.Items) == 0 {
		fmt.Fprintln(cmd.ErrOrStderr(), o.nothing(cmd, from, namespace))
	}
	return show(cmd, o.output, services, func() string {
		if o.output == outputName {
			return strings.Join(append(inspect.Names(services), ""), "\n") // each ends its line
		}
		style := printer(cmd)
		style.Wide, style.Namespaces, style.NoHeaders = o.output == outputWide, namespace == "", o.noHeaders
		return style.Services(services, o.rates(services.ConnectionsError, services.Time, services.Items...))
	})
}

// nothing is what is printed in place of an empty list, as kubectl does, with the number of Services elsewhere.
func (o *serviceOptions) nothing(cmd *cobra.Command, from inspect.Reader, namespace string) string {
	if o.address != "" {
		return "No Services found with the address " + o.address + "."
	}
	if namespace == "" {
		return "No Services found."
	}
	text := "No Services found in namespace " + namespace
	if all, err := from.Services(cmd.Context(), status.Filter{}, false); err == nil && len(all.Items) > 0 {
		text += fmt.Sprintf("; %d in others: -A", len(all.Items))
	}
	return text + "."
}

// describe shows one Service.
func (o *serviceOptions) describe(cmd *cobra.Command, from inspect.Reader, name cluster.ServiceName) error {
	service, err := from.Service(cmd.Context(), name)
	if err != nil {
		return err
	}
	return show(cmd, o.output, service, func() string {
		if o.output == outputName {
			return name.String() + "\n"
		}
		return printer(cmd).Service(service, o.rates(service.ConnectionsError, *service.Time, *service))
	})
}
