package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-11a05479/kube-proxy/cmd/kube-proxy/app"
	"github.com/seed-11a05479/kube-proxy/pkg/apis/status/v1alpha1"
	"github.com/seed-11a05479/kube-proxy/pkg/packets"
	"github.com/seed-11a05479/kube-proxy/pkg/status"
	"github.com/seed-11a05479/kube-proxy/pkg/terminal"
)

// exitNothing is the exit code of "kube-proxy trace" if there were no packets; it has exitRefused, too.
const exitNothing = 4

// The largest values of the flags.
const (
	maxTraced   = 1000
	maxDuration = time.Hour
)

// traceOptions are the flags of "kube-proxy trace".
type traceOptions struct {
	readerOptions
	to, from string
	opening  bool
	count    int
	duration time.Duration
	output   string
}

func newTraceCommand() *cobra.Command {
	opts := &traceOptions{}
	command := &cobra.Command{
		Use:   "trace [[NAMESPACE/]NAME[:PORT] | ADDRESS[:PORT[/PROTOCOL]]] [--from CIDR]",
		Short: "Show what happens to real packets to a Service or an address",
		Long: fmt.Sprintf(`Follow real packets through the rules of all programs on this node: which endpoint they were sent to, whether the source address was
replaced, and whose chain refused them. Packets are those to a Service; to an ADDRESS, or one port there (TCP unless it has /udp or
/sctp); or all from --from. Replies and what iptables-legacy does are not shown.

The kernel reports at most %d packets a second in each IP family (nftables' trace, Linux 5.12), and changes none. A trace needs
CAP_NET_ADMIN and the network namespace of the node. Only one can run at a time; it removes its tables, kube-proxy-trace.
`+readerHelp+`

Exit codes: 0 if all packets were delivered here or sent on; 3 if one was refused, vanished, or could not be followed to its end;
4 if there was none; 1 or 2 if there is no answer.`, packets.PerSecond),
		Example: `  kube-proxy trace default/web
  kube-proxy trace 10.96.0.10:53/udp --from 10.244.1.0/24 --count 3
  kube-proxy trace default/web --node node2 -o json`,
		Args: usageArgs(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if opts.elsewhere() {
				return opts.inPod(cmd, args, opts.timeout)
			}
			if len(args) > 0 {
				opts.to = opts.qualified(args[0])
			}
			return opts.run(cmd)
		},
		ValidArgsFunction: opts.completeServices,
	}
	opts.addFlags(command)
	opts.addNamespace(command)
	command.Flags().StringVar(&opts.from, "from", "", "Follow only packets from this `CIDR` or address.")
	command.Flags().BoolVar(&opts.opening, "new", false, "Of TCP, follow only the packets that open a connection.")
	command.Flags().IntVar(&opts.count, "count", 10, "End after this `number` of packets, at most 1000.")
	command.Flags().DurationVar(&opts.duration, "duration", 30*time.Second, "End after this `time`, at most 1h.")
	outputFlag(command, &opts.output, outputText, outputJSON, outputYAML)
	return command
}

// check returns what to trace, or a usage error.
func (o *traceOptions) check() (packets.Target, error) {
	target, err := packets.ParseTarget(o.to, o.from)
	target.Opening = o.opening
	switch {
	case err != nil:
		return target, app.UsageError{Err: err}
	case o.count < 1 || o.count > maxTraced:
		return target, app.UsageError{Err: fmt.Errorf("--count %d is not between 1 and %d", o.count, maxTraced)}
	case o.duration <= 0 || o.duration > maxDuration:
		return target, app.UsageError{Err: fmt.Errorf("--duration %s is not between 0 and %s", o.duration, maxDuration)}
	}
	return target, nil
}

// run traces packets and prints them.
func (o *traceOptions) run(cmd *cobra.Command) error {
	target, err := o.check()
	if err != nil {
		return err
	}
	o.here = true
	reader, err := o.open(cmd)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	info, err := reader.Info(ctx)
	if err != nil {
		return err
	}
	if err := status.Failing(info, ""); err != nil {
		printLines(cmd.ErrOrStderr(), "Warning: ", err)
	}
	filter, names, err := target.Resolve(ctx, reader, info.NodePortAddresses)
	if err != nil {
		return err
	}
	if err := traceable(ctx, info.Mode); err != nil {
		return err
	}
	tracer, err := openTracer(ctx, filter)
	if err != nil {
		return err
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "Tracing up to %s for %s; Ctrl-C ends it.\n", terminal.Count(o.count, "packet"), o.duration)
	limited, cancel := context.WithTimeout(ctx, o.duration)
	defer cancel()
	follow := packets.Trace{Tracer: tracer, Names: names, Why: app.WhyNotForwarded, Count: o.count, Show: o.show(cmd)}
	result, err := follow.Follow(limited)
	if err := errors.Join(err, tracer.Close()); err != nil {
		return err
	}
	return o.conclude(cmd, result)
}

// show returns what prints a packet.
func (o *traceOptions) show(cmd *cobra.Command) func(*v1alpha1.PacketTrace) error {
	width := printer(cmd).Width
	return func(p *v1alpha1.PacketTrace) error {
		if o.output == outputYAML {
			fmt.Fprintln(cmd.OutOrStdout(), "---")
		}
		return show(cmd, o.output, p, func() string { return packets.Text(p, width) })
	}
}

// conclude prints a summary, apart from the packets, and returns the exit code.
func (o *traceOptions) conclude(cmd *cobra.Command, r packets.Result) error {
	out := cmd.ErrOrStderr()
	if r.Lost {
		fmt.Fprintln(out, "Some events were lost: the kernel had more than could be received. Trace fewer packets, with --from or a port.")
	}
	switch {
	case r.Packets == 0:
		fmt.Fprintln(out, "No packet was seen on this node: none was sent to it, or it was dropped before netfilter.\n"+
			"The destination is the one that the client uses: connections through a Service are traced with its name.")
		return app.ExitCode{Code: exitNothing}
	case r.Refused > 0:
		fmt.Fprintf(out, "%d of %s did not arrive.\n", r.Refused, terminal.Count(r.Packets, "packet"))
		return app.ExitCode{Code: exitRefused}
	case r.Unknown > 0:
		fmt.Fprintf(out, "%d of %s could not be followed to the end.\n", r.Unknown, terminal.Count(r.Packets, "packet"))
		return app.ExitCode{Code: exitRefused}
	default:
		fmt.Fprintf(out, "Delivered here, or sent on: %s.\n", terminal.Count(r.Packets, "packet"))
		return nil
	}
}
