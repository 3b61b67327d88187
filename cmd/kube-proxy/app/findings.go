package app

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/component-base/term"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/config"
	"github.com/seed-11a05479/kube-proxy/pkg/findings"
	"github.com/seed-11a05479/kube-proxy/pkg/findings/listing"
	"github.com/seed-11a05479/kube-proxy/pkg/terminal"
)

// This file is what the commands "analyze" and "audit" share.

// The exit codes of both commands.
const (
	exitFindings   = 1
	exitUnreadable = 2
)

// objectsFrom is where a command reads objects from: a cluster, or manifests.
type objectsFrom struct {
	kubeconfig, context string
	manifests           string
	userAgent           string
}

// addFlags adds the flags to a command.
func (f *objectsFrom) addFlags(command *cobra.Command) {
	flags := command.Flags()
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig `file`. By default as kubectl finds it, or a pod's service account.")
	flags.StringVar(&f.context, "context", "", "`name` of the kubeconfig's context to use.")
	flags.StringVar(&f.manifests, "manifests", "", "`directory` of manifests, or one file, to read instead of a cluster; - is standard input. Other kinds of objects are ignored.")
}

// read passes all objects to an Analyzer. bad joins an error for each object that could not be read; the others were.
func (f *objectsFrom) read(cmd *cobra.Command, analyzer *findings.Analyzer) (bad, err error) {
	if f.manifests != "" {
		passedOver, bad, err := listing.Files(f.manifests, cmd.InOrStdin(), analyzer)
		for _, line := range passedOver {
			fmt.Fprintln(cmd.ErrOrStderr(), terminal.Printable(line))
		}
		return bad, err
	}
	client, err := restConfig(f.kubeconfig, f.context, f.userAgent)
	if err != nil {
		return nil, fmt.Errorf("%w, or --manifests to read files", err)
	}
	clients, err := listing.Connect(client)
	if err != nil {
		return nil, err
	}
	progress := &listing.Progress{}
	if _, _, notTerminal := term.TerminalSize(cmd.ErrOrStderr()); notTerminal == nil {
		progress.Out = cmd.ErrOrStderr()
	}
	return nil, listing.Cluster(cmd.Context(), clients, analyzer, progress)
}

// check returns an error if objects would come from two places.
func (f *objectsFrom) check() error {
	if f.manifests != "" && (f.kubeconfig != "" || f.context != "") {
		return usageError{errors.New("--manifests and --kubeconfig or --context exclude each other")}
	}
	return nil
}

// configFindings returns the deprecated and unsupported settings of a file.
func configFindings(path string, l *loaded) []findings.Finding {
	var all []findings.Finding
	add := func(message string) {
		all = append(all, findings.Finding{Code: findings.Configuration, Kind: "File", Name: path, Message: message})
	}
	if l.file.Version != config.Version {
		add(fmt.Sprintf("version %s is not the latest, %s", l.file.Version, config.Version))
	}
	if err := l.check(config.Startable(l.cfg, config.Platform(l.cfg))); err != nil {
		add(strings.TrimPrefix(err.Error(), path+":"))
	}
	for _, warning := range l.warnings {
		add(strings.TrimPrefix(warning, path+":"))
	}
	for _, loss := range l.file.Dropped {
		add(loss.String())
	}
	return all
}

// printRemedies prints what to do about each code, in the order of the findings.
func printRemedies(out io.Writer, all []findings.Finding) {
	printed := map[findings.Code]bool{}
	for _, f := range all {
		if d, ok := findings.Define(f.Code); ok && !printed[f.Code] {
			printed[f.Code] = true
			fmt.Fprintf(out, "\n%s\n%s\n", f.Code, terminal.Wrap(d.Remedy, 100))
		}
	}
}
