package app

import (
	"cmp"

	"github.com/spf13/cobra"

	"github.com/seed-11a05479/kube-proxy/pkg/inspect"
)

func newDriftCommand() *cobra.Command {
	var server, output string
	var check func() error
	command := &cobra.Command{
		Use:   "drift",
		Short: "Show which rules other programs changed, and the proxy repaired",
		Long: `Lists the last 100 times that the proxy found its rules changed by another program: when, which chains, sets or elements
differed, and the program that wrote them where the kernel reports it (iptables mode with iptables-nft). The proxy repairs them at
once; kube-proxy render --diff shows what differs now.

It asks the proxy that runs on this node, by its metrics address.`,
		Example: "  kube-proxy drift\n  kube-proxy drift -o json",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := check(); err != nil {
				return err
			}
			client, err := inspect.NewClient(server, inspect.DefaultTimeout)
			if err != nil {
				return usageError{err}
			}
			repairs, err := client.Repairs(cmd.Context())
			if err != nil {
				return err
			}
			if output != outputText {
				err = printObject(cmd.OutOrStdout(), output, repairs)
			} else {
				err = printer(cmd).PrintRepairs(cmd.OutOrStdout(), repairs)
			}
			return cmp.Or(err, failing(cmd.Context(), client, ""))
		},
	}
	command.Flags().StringVar(&server, "server", inspect.DefaultServer, "metrics `address` of the running proxy, HOST:PORT.")
	check = outputFlag(command, &output, outputText, outputJSON, outputYAML)
	return command
}
