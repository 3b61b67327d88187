package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/component-base/featuregate"
	"k8s.io/component-base/term"

	"github.com/seed-11a05479/kube-proxy/cmd/kube-proxy/app"
	"github.com/seed-11a05479/kube-proxy/pkg/apis/config"
	"github.com/seed-11a05479/kube-proxy/pkg/features"
	"github.com/seed-11a05479/kube-proxy/pkg/inspect"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/source"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/source/apiserver"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/source/manifests"
	"github.com/seed-11a05479/kube-proxy/pkg/status"
	"github.com/seed-11a05479/kube-proxy/pkg/terminal"
)

// readerOptions say where a command reads what it shows: a running proxy, or objects where none runs.
type readerOptions struct {
	server string
	// timeout bounds one request; addFlags keeps one that is set as the flag's default.
	timeout    time.Duration
	manifests  string
	kubeconfig string
	configFile string
	onNode
	// namespace is that of Services that are named without one.
	namespace string
	// mode is the proxy mode to plan for in place of a running proxy; empty is the configuration's.
	mode string
	// here means that the Node is this machine, whatever its name, so that its addresses are those of this machine's interfaces.
	here bool
}

// readerHelp is a part of the help of each command with readerOptions.
const readerHelp = `
It asks the proxy on this node, or with --node the one on another node, by a port forward with kubectl's configuration (trace and
--try run in its pod, where Ctrl-C does not end them). Where no proxy runs, --manifests or --kubeconfig shows what one on the Node
--node would do, configured by --config.`

// addContext adds the flag with the context of the kubeconfig.
func addContext(command *cobra.Command, context *string) {
	command.Flags().StringVar(context, "context", "", "Context `name` of the kubeconfig.")
	_ = command.RegisterFlagCompletionFunc("context", func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		rules := clientcmd.NewDefaultClientConfigLoadingRules()
		rules.ExplicitPath, _ = cmd.Flags().GetString("kubeconfig")
		known, err := rules.Load()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return slices.Sorted(maps.Keys(known.Contexts)), cobra.ShellCompDirectiveNoFileComp
	})
}

// addFlags adds the flags to a command.
func (o *readerOptions) addFlags(command *cobra.Command) {
	o.addServer(command, cmp.Or(o.timeout, inspect.DefaultTimeout))
	flags := command.Flags()
	flags.StringVar(&o.manifests, "manifests", "", "Read a `directory` of manifests, not a running proxy.")
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "Read the cluster of a kubeconfig `file`, not a running proxy.")
	o.onNode.addFlags(command, "Node `name`. Default: this host's.")
	flags.StringVar(&o.configFile, "config", "", "Configuration `file` of the proxy, with --manifests or --kubeconfig.")
}

// addServer adds the flags that say where the running proxy is, and how long to wait for it.
func (o *readerOptions) addServer(command *cobra.Command, timeout time.Duration) {
	command.Flags().StringVar(&o.server, "server", inspect.DefaultServer, "Metrics `address` of the running proxy, HOST:PORT.")
	command.Flags().DurationVar(&o.timeout, "request-timeout", timeout, "Maximum `time` to wait for the running proxy.")
}

// addNamespace adds the flag with the namespace of Services that are named without one.
func (o *readerOptions) addNamespace(command *cobra.Command) {
	command.Flags().StringVarP(&o.namespace, "namespace", "n", metav1.NamespaceDefault, "Service `namespace`, unless the name has one.")
	_ = command.RegisterFlagCompletionFunc("namespace", o.completeNamespaces)
}

// qualified adds the namespace to the name of a Service that has none; other texts are left as they are. svc/NAME, as kubectl
// accepts, is a name.
func (o *readerOptions) qualified(name string) string { return inspect.Qualified(o.namespace, name) }

// completeServices and completeNamespaces list what the command would read: with --namespace, names without one.
func (o *readerOptions) completeServices(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	return o.complete(cmd, args, func(ctx context.Context, from inspect.Reader) []string {
		names := inspect.ServiceNames(ctx, from)
		if !cmd.Flags().Changed("namespace") {
			return names
		}
		var own []string
		for _, name := range names {
			if short, is := strings.CutPrefix(name, o.namespace+"/"); is {
				own = append(own, short)
			}
		}
		return own
	})
}

func (o *readerOptions) completeNamespaces(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return o.complete(cmd, nil, inspect.Namespaces)
}

func (o *readerOptions) complete(cmd *cobra.Command, args []string, names func(context.Context, inspect.Reader) []string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
	defer cancel()
	cmd.SetContext(ctx)
	o.timeout = completionTimeout
	from, err := o.open(cmd)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return names(ctx, from), cobra.ShellCompDirectiveNoFileComp
}

// completionTimeout is how long a shell's user waits for a completion.
const completionTimeout = 5 * time.Second

// running reports whether a running proxy is to be asked.
func (o *readerOptions) running() bool { return o.manifests == "" && o.kubeconfig == "" }

// elsewhere reports whether it is that of another node.
func (o *readerOptions) elsewhere() bool { return o.running() && o.node != "" }

// check rejects flags that contradict each other.
func (o *readerOptions) check(cmd *cobra.Command) error {
	switch {
	case o.manifests != "" && o.kubeconfig != "":
		return app.UsageError{Err: errors.New("--manifests and --kubeconfig exclude each other: objects come from one place")}
	case !o.running() && cmd.Flags().Changed("server"):
		return app.UsageError{Err: errors.New("--server names a running proxy: it excludes --manifests and --kubeconfig")}
	case o.running() && o.configFile != "":
		return app.UsageError{Err: errors.New("--config needs --manifests or --kubeconfig: a running proxy has its own")}
	case !o.running() && cmd.Flags().Changed("proxy-namespace"):
		return app.UsageError{Err: errors.New("--proxy-namespace is that of running proxies: it excludes --manifests and --kubeconfig")}
	case o.manifests != "" && cmd.Flags().Changed("context"):
		return app.UsageError{Err: errors.New("--context names a cluster: it excludes --manifests")}
	case o.running():
		return o.onNode.check(cmd)
	}
	return nil
}

// clusterTimeout bounds the reading of a whole cluster, and any other request to the API server.
const clusterTimeout = time.Minute

// open returns the reader that the flags ask for.
func (o *readerOptions) open(cmd *cobra.Command) (inspect.Reader, error) {
	if err := o.check(cmd); err != nil {
		return nil, err
	}
	if o.running() {
		client, err := inspect.NewClient(o.server, o.timeout)
		if err != nil {
			return nil, app.UsageError{Err: err}
		}
		if o.elsewhere() {
			of, err := o.fleet(o.timeout)
			if err != nil {
				return nil, err
			}
			return of.Through(cmd.Context(), client)
		}
		return client, nil
	}
	return o.load(cmd)
}

// failing warns of what is wrong with the proxy as a whole, and returns an error if the last sync failed in a family, or in any if family
// is empty.
func failing(cmd *cobra.Command, from inspect.Reader, family string) error {
	info, err := from.Info(cmd.Context())
	if err != nil {
		return err
	}
	fmt.Fprint(cmd.ErrOrStderr(), printer(cmd).Problems(info))
	return status.Failing(info, family)
}

// load reads the objects of files or a cluster, as a proxy with the configuration would.
func (o *readerOptions) load(cmd *cobra.Command) (inspect.Reader, error) {
	cfg, gates, err := o.configuration(cmd)
	if err != nil {
		return nil, err
	}
	// Another machine is taken to have both families.
	n, err := app.NewThisNode(cfg, gates, o.node, !o.here || app.MachineHasIPv6())
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(cmd.Context(), clusterTimeout, fmt.Errorf("the API server did not answer within %s", clusterTimeout))
	defer cancel()
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	machine, network := app.ThisMachine()
	var objects source.Source
	if o.manifests != "" {
		objects = manifests.New(o.manifests, n.Name, machine)
	} else {
		client, err := restConfig(o.kubeconfig, o.context, "kube-proxy")
		if err != nil {
			return nil, err
		}
		if objects, err = apiserver.New(client, n.Name, apiserver.Options{TrustLists: true, OnFailure: func(resource, cause string) {
			if cause != "" {
				fail(fmt.Errorf("list %s: the API server at %s is %s", resource, client.Host, cause))
			}
		}}); err != nil {
			return nil, err
		}
	}
	sources := []source.Source{objects}
	if o.here {
		sources = append(sources, network...)
	}
	// This is how a plan becomes rules without a running proxy.
	rules := status.Rules{Mode: string(cfg.EffectiveMode()), Renderers: app.Renderers(cfg, backend.CounterLimits{}), Families: n.Wanted}
	return inspect.Load(ctx, n.Builder, n.Planning, rules, sources...)
}

// configuration returns that of the configuration file, or the flags' defaults.
func (o *readerOptions) configuration(cmd *cobra.Command) (*config.KubeProxyConfiguration, featuregate.FeatureGate, error) {
	cfg, gates := app.DefaultConfig(), features.Read(nil).Gate
	if o.configFile != "" {
		l, err := loadValidConfig(cmd, o.configFile)
		if err != nil {
			return nil, gates, err
		}
		cfg, gates = l.Config, l.Features.Gate
	}
	if o.mode != "" {
		cfg.Mode = config.ProxyMode(o.mode)
	}
	return cfg, gates, nil
}

// restConfig finds the API server as kubectl does, or as a pod. kubeconfig and context may be empty. Each request takes at most clusterTimeout.
func restConfig(kubeconfig, context, userAgent string) (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	client, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: context}).ClientConfig()
	switch {
	case clientcmd.IsEmptyConfig(err):
		return nil, errors.New("find the API server: there is no kubeconfig in ~/.kube/config or $KUBECONFIG, and this is no pod")
	case err != nil:
		return nil, fmt.Errorf("find the API server: %w", err)
	}
	client.Timeout = clusterTimeout
	return rest.AddUserAgent(client, userAgent), nil
}

// printer returns how text is printed for a command: as wide as its terminal, if it has one.
func printer(cmd *cobra.Command) inspect.Printer {
	width, _, err := term.TerminalSize(cmd.OutOrStdout())
	if err != nil {
		width = 0
	}
	return inspect.Printer{Width: width}
}

// progress returns where a command shows its progress: on standard error, if that is a terminal.
func progress(cmd *cobra.Command) terminal.Progress {
	if !isTerminal(cmd.ErrOrStderr()) {
		return terminal.Progress{}
	}
	return terminal.Progress{Out: cmd.ErrOrStderr()}
}

// isTerminal reports whether out is a terminal whose lines can be cleared.
func isTerminal(out io.Writer) bool {
	_, _, err := term.TerminalSize(out)
	return err == nil && os.Getenv("TERM") != "dumb"
}
