// kube-proxy serves Kubernetes Services on a node, in place of Kubernetes' own kube-proxy: the same command line, the
// same configuration files, the same names in the kernel.
package main

import (
	"os"

	"github.com/seed-11a05479/kube-proxy/cmd/kube-proxy/cli"
)

func main() {
	os.Exit(cli.Run(os.Args[1:], os.Stdout, os.Stderr))
}
