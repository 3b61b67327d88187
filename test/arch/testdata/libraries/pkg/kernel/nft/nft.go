// Package nft is part of an example.
package nft

import (
	_ "github.com/vishvananda/netlink"
	_ "os/exec"
	_ "sigs.k8s.io/knftables"
)
