package main

import "github.com/spf13/cobra"

// newConfigCommand builds "kube-proxy config", which works on any machine, without a cluster and without root.
func newConfigCommand() *cobra.Command {
	return &cobra.Command{Use: "config", Short: "Convert, check and explain configuration files"}
}
