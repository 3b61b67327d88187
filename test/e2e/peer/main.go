// Command peer builds Kubernetes' own kube-proxy, of the release that test/e2e/servers pins, unless it is cached, and prints
// its path. It must run in the folder test/e2e.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/seed-11a05479/kube-proxy/test/e2e"
)

func main() {
	path, err := e2e.Peer(context.Background())
	if err != nil {
		fmt.Fprintln(os.Stderr, "peer:", err)
		os.Exit(1)
	}
	fmt.Println(path)
}
