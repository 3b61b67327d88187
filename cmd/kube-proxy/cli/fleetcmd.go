package cli

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed-11a05479/kube-proxy/cmd/kube-proxy/app"
	"github.com/seed-11a05479/kube-proxy/pkg/fleet"
	"github.com/seed-11a05479/kube-proxy/pkg/inspect"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/terminal"
	"github.com/seed-11a05479/kube-proxy/pkg/userfile"
)

// Where a proxy is by default.
const (
	proxyNamespace = "kube-system"
	proxySelector  = "k8s-app=kube-proxy"
	metricsPort    = "10249"
	healthzPort    = "10256"
)

const (
	// changeLag is how long a change may wait to be programmed before a node lags. Clocks of machines differ.
	changeLag = 10 * time.Second
	// settleTime is the time between two readings of nodes that differ.
	settleTime = time.Second
	// maxReport is the maximum size of an earlier report in bytes.
	maxReport = 64 << 20
)

// fleetOptions are the flags of "kube-proxy fleet" and "kube-proxy fleet wait".
type fleetOptions struct {
	kubeconfig, context string
	fleet.Options
	output string
	// compare is the path of an earlier report.
	compare string
	// namespace and timeout are those of wait.
	namespace string
	timeout   time.Duration
}

func newFleetCommand() *cobra.Command {
	opts := &fleetOptions{}
	command := &cobra.Command{
		Use:   "fleet",
		Short: "Show what the proxies of all nodes serve, and where they disagree",
		Long: `Ask the proxy of every node for its version, mode, health, last sync and problems, and name the Services on which nodes
differ (docs/fleet.md). It needs the rights of build/manifests/fleet-role.yaml: list pods, and create pods/portforward.

Exit codes: 0 if all nodes serve without problems and agree, or with --compare if no node is worse than in the earlier report;
1 if not; 2 if the nodes are not known, or the command line is invalid.`,
		Example: `  kube-proxy fleet
  kubectl kube-proxy fleet -o json > before.json
  kube-proxy fleet --compare before.json
  kube-proxy fleet wait service/web -n shop --timeout 2m`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return opts.run(cmd) },
	}
	opts.addFlags(command)
	command.Flags().StringVar(&opts.compare, "compare", "", "Compare with an earlier report, a `file` of -o json or - for standard input, and fail only for nodes that are worse.")
	command.AddCommand(newFleetWaitCommand())
	return command
}

func newFleetWaitCommand() *cobra.Command {
	opts := &fleetOptions{}
	command := &cobra.Command{
		Use:   "wait [NAMESPACE/]NAME",
		Short: "Wait until every node serves the present endpoints of a Service",
		Long: `Return when the proxy of every node has programmed a Service and its endpoints as the API server has them, even if they change while
it waits. NAME may also be service/NAME.

It needs the rights of "kube-proxy fleet", and get services and list endpointslices in the Service's namespace.

Exit codes: 0 if all nodes have, 1 if some have not after --timeout, 2 if that is not known, or the command line is invalid.`,
		Example: `  kube-proxy fleet wait service/web
  kubectl rollout status deployment/web -n shop && kubectl kube-proxy fleet wait shop/web --timeout 30s`,
		Args: usageArgs(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error { return opts.wait(cmd, args[0]) },
	}
	opts.addFlags(command)
	command.Flags().StringVarP(&opts.namespace, "namespace", "n", metav1.NamespaceDefault, "Service `namespace`, unless the name has one.")
	command.Flags().DurationVar(&opts.timeout, "timeout", time.Minute, "Give up after this `time`; 0 asks once.")
	return command
}

// addFlags adds the flags that both commands have.
func (o *fleetOptions) addFlags(command *cobra.Command) {
	o.Lag, o.Settle = changeLag, settleTime
	flags := command.Flags()
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "Kubeconfig `file`. Default: kubectl's, or a pod's service account.")
	addContext(command, &o.context)
	flags.StringVar(&o.Namespace, "proxy-namespace", proxyNamespace, "The `namespace` of the proxy's pods.")
	flags.StringVar(&o.Selector, "selector", proxySelector, "Label `selector` of the pods of the proxy.")
	flags.StringVar(&o.Metrics, "port", metricsPort, "Port `number` of metricsBindAddress.")
	flags.StringVar(&o.Health, "healthz-port", healthzPort, "Port `number` of healthzBindAddress.")
	flags.DurationVar(&o.Timeout, "request-timeout", 3*time.Second, "Maximum `time` to wait for one node.")
	outputFlag(command, &o.output, outputTable, outputJSON, outputYAML)
}

// open checks the flags and returns the fleet that they describe. done removes the progress from the terminal.
func (o *fleetOptions) open(cmd *cobra.Command) (of *fleet.Fleet, done func(), err error) {
	if o.Timeout <= 0 || o.timeout < 0 {
		return nil, nil, app.UsageError{Err: errors.New("--request-timeout must be positive, and --timeout not negative")}
	}
	for flag, port := range map[string]string{"port": o.Metrics, "healthz-port": o.Health} {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return nil, nil, app.UsageError{Err: fmt.Errorf("--%s %q is not a port number from 1 to 65535", flag, port)}
		}
	}
	client, err := restConfig(o.kubeconfig, o.context, "kube-proxy-fleet")
	if err != nil {
		return nil, nil, app.ExitCode{Code: exitUnreadable, Err: fmt.Errorf("%w; give --kubeconfig", err)}
	}
	shown := progress(cmd)
	o.Progress = func(asked, all int) { shown.Show("Asked %d of %s", asked, terminal.Count(all, "node")) }
	if of, err = fleet.New(client, o.Options); err != nil {
		return nil, nil, app.UsageError{Err: err}
	}
	return of, shown.Clear, nil
}

// run asks all nodes and prints what they answer.
func (o *fleetOptions) run(cmd *cobra.Command) error {
	of, done, err := o.open(cmd)
	if err != nil {
		return err
	}
	before, err := o.before(cmd.InOrStdin())
	if err != nil {
		return app.UsageError{Err: fmt.Errorf("--compare: %w", err)}
	}
	report, err := of.Ask(cmd.Context())
	done()
	if err != nil {
		return app.ExitCode{Code: exitUnreadable, Err: err}
	}
	if before != nil {
		report.CompareWith(before)
	}
	if err = show(cmd, o.output, report, report.Text); err == nil && !report.Fine() {
		return app.ExitCode{Code: exitFindings}
	}
	return err
}

// before returns the report to compare with; nil if there is none.
func (o *fleetOptions) before(stdin io.Reader) (*fleet.Report, error) {
	if o.compare == "" {
		return nil, nil
	}
	name, text, err := userfile.ReadArgument(o.compare, stdin, maxReport)
	if err != nil {
		return nil, err
	}
	before, err := fleet.Read(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return before, nil
}

// wait waits for a Service, which may be named as kubectl does.
func (o *fleetOptions) wait(cmd *cobra.Command, service string) error {
	name, ok := cluster.ParseServiceName(inspect.Qualified(o.namespace, service))
	if !ok {
		return app.UsageError{Err: fmt.Errorf("%q does not name a Service: write NAMESPACE/NAME or service/NAME", service)}
	}
	of, done, err := o.open(cmd)
	if err != nil {
		return err
	}
	waited, err := of.Wait(cmd.Context(), name, o.timeout)
	done()
	if err != nil {
		return app.ExitCode{Code: exitUnreadable, Err: err}
	}
	if o.output == outputTable {
		for _, note := range waited.Notes {
			fmt.Fprintf(cmd.ErrOrStderr(), "Note: %s\n", terminal.Printable(note))
		}
	}
	switch {
	case o.output != outputTable:
		err = printObject(cmd.OutOrStdout(), o.output, waited)
	case len(waited.Behind) == 0:
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: served by %s with %s.\n", name, terminal.Count(waited.Nodes, "node"), terminal.Count(waited.Endpoints, "endpoint"))
	default:
		err = waited.Missing()
	}
	if len(waited.Behind) > 0 {
		return app.ExitCode{Code: exitFindings, Err: err}
	}
	return err
}
