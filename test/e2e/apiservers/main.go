// Command apiservers builds an API server of each supported release of Kubernetes, unless it is cached, and prints their paths, one on
// a line, for KUBE_APISERVER. It must run in the folder test/e2e.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/seed-11a05479/kube-proxy/test/e2e"
)

func main() {
	paths, err := e2e.APIServers(context.Background())
	if err != nil {
		fmt.Fprintln(os.Stderr, "apiservers:", err)
		os.Exit(1)
	}
	for _, path := range paths {
		fmt.Println(path)
	}
}
