package cli

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/seed-11a05479/kube-proxy/cmd/kube-proxy/app"
	"github.com/seed-11a05479/kube-proxy/pkg/apis/status/v1alpha1"
	"github.com/seed-11a05479/kube-proxy/pkg/inspect"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/status"
)

// The exit codes of "kube-proxy explain", beside those of all commands.
const (
	exitRefused  = 3
	exitNotOurs  = 4
	exitDisagree = 5
)

// maxTries bounds --try.
const maxTries = 1000

// explainOptions are the flags of "kube-proxy explain".
type explainOptions struct {
	readerOptions
	connection status.Question
	try        int
	output     string
}

func newExplainCommand() *cobra.Command {
	opts := &explainOptions{}
	command := &cobra.Command{
		Use:   "explain IP:PORT[/PROTOCOL]|[NAMESPACE/]NAME[:PORT] [--from POD|IP|node|external]",
		Short: "Explain where a connection goes, step by step",
		Long: `Explain what the proxy does with a new connection, and why. --try also makes connections from this node, and compares.

--from is an IP address, a pod as NAMESPACE/POD, node, or external: a client outside the cluster. The destination is an address with
a port, a URL, or a Service, which may be its DNS name (NAME.NAMESPACE.svc). For a Service the address is its cluster IP, or for
external clients a load balancer IP, an external IP or a node port. A port is a number or a name, and may be missing if the Service
has only one. PROTOCOL is tcp, udp or sctp.
` + readerHelp + `

Exit codes: 0 if the connection is sent to an endpoint, 3 if it is rejected or dropped, 4 if the proxy leaves it alone, 5 if --try had
another result or an endpoint did not answer, 1 or 2 if there is no answer, 1 also after a failed sync.`,
		Example: `  kube-proxy explain 10.96.0.10:80 --from 10.244.1.3
  kube-proxy explain default/web:http --from external
  kube-proxy explain web -n default --try 20`,
		Args: usageArgs(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if opts.try > 0 && opts.elsewhere() {
				return opts.inPod(cmd, args)
			}
			if len(args) > 0 {
				if opts.connection.To != "" {
					return app.UsageError{Err: fmt.Errorf("%q and --to %q: name one destination", args[0], opts.connection.To)}
				}
				opts.connection.To = args[0]
			}
			opts.connection.To = opts.qualified(opts.connection.To)
			return opts.run(cmd)
		},
		ValidArgsFunction: opts.completeServices,
	}
	opts.addFlags(command)
	opts.addNamespace(command)
	command.Flags().StringVar(&opts.connection.From, "from", "node", "The `source`.")
	command.Flags().StringVar(&opts.connection.To, "to", "", "The `destination`, in place of the argument.")
	command.Flags().StringVar(&opts.connection.Interface, "interface", "", "Interface `name` that the connection arrives on, if the proxy detects local traffic by it.")
	command.Flags().IntVar(&opts.try, "try", 0, "Send this `number` of connections from this node, at most 1000.")
	outputFlag(command, &opts.output, outputText, outputJSON, outputYAML)
	_ = command.RegisterFlagCompletionFunc("to", opts.completeServices)
	complete(command, "from", []string{status.FromNode, status.FromExternal})
	return command
}

// check returns a usage error for flags that are missing or contradict each other.
func (o *explainOptions) check() error {
	switch {
	case o.connection.To == "":
		return app.UsageError{Err: fmt.Errorf("the destination is missing: give IP:PORT or NAMESPACE/NAME")}
	case o.try < 0 || o.try > maxTries:
		return app.UsageError{Err: fmt.Errorf("--try %d is not between 0 and %d", o.try, maxTries)}
	case o.try > 0 && (o.connection.From != "node" || !o.running()):
		return app.UsageError{Err: fmt.Errorf("--try sends connections from this node: it needs --from node and a running proxy")}
	}
	return nil
}

// run explains the connection, and with --try sends some.
func (o *explainOptions) run(cmd *cobra.Command) error {
	if err := o.check(); err != nil {
		return err
	}
	_, o.finds = cluster.ParseServiceName(o.connection.From) // a pod is named as a Service is
	reader, err := o.open(cmd)
	if err != nil {
		return err
	}
	explanation, err := o.explain(cmd, reader)
	if err != nil {
		return err
	}
	if o.try > 0 {
		if explanation.Trial, err = inspect.Try(cmd.Context(), reader, explanation, o.try); err != nil {
			return err
		}
	}
	if err := show(cmd, o.output, explanation, func() string { return printer(cmd).Explanation(explanation) }); err != nil {
		return err
	}
	family := cluster.IPv4
	if strings.HasPrefix(explanation.To, "[") {
		family = cluster.IPv6
	}
	return cmp.Or(failing(cmd, reader, family.String()), codeOf(explanation))
}

// codeOf ends the command with the exit code of a trial or a verdict.
func codeOf(e *v1alpha1.Explanation) error {
	switch {
	case e.Trial != nil && !e.Trial.Succeeds:
		return app.ExitCode{Code: exitDisagree}
	case e.Verdict == v1alpha1.VerdictBalance:
		return nil
	case e.Verdict == v1alpha1.VerdictPass:
		return app.ExitCode{Code: exitNotOurs}
	default:
		return app.ExitCode{Code: exitRefused}
	}
}

// explain asks for the explanation. A pod as the source is replaced by its address, which it asks the API server for: that of the
// destination's family, or if that is a Service, the first one with which there is an answer.
func (o *explainOptions) explain(cmd *cobra.Command, reader inspect.Reader) (*v1alpha1.Explanation, error) {
	name, ok := cluster.ParseServiceName(o.connection.From)
	if !ok {
		return reader.Explain(cmd.Context(), o.connection)
	}
	if o.manifests != "" {
		return nil, app.UsageError{Err: fmt.Errorf("--from %s: manifests have no pods with addresses; give the pod's IP address", name)}
	}
	client, err := restConfig(o.kubeconfig, o.context, "kube-proxy")
	if err != nil {
		return nil, fmt.Errorf("find pod %s: %w; give the pod's IP address as --from", name, err)
	}
	pod, err := inspect.FindPod(cmd.Context(), client, name.Namespace, name.Name)
	if err != nil {
		return nil, err
	}
	families := []bool{false, true} // whether it is IPv6
	if strings.HasPrefix(o.connection.To, "[") {
		families = families[1:]
	}
	var first error
	for _, ipv6 := range families {
		from := o.connection
		if from.From, err = pod.Address(ipv6); err == nil {
			var explanation *v1alpha1.Explanation
			if explanation, err = reader.Explain(cmd.Context(), from); err == nil {
				return explanation, nil
			}
		}
		first = cmp.Or(first, err)
	}
	return nil, first
}
