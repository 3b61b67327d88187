// Package iptables is part of an example.
package iptables

import (
	_ "github.com/coreos/go-iptables/iptables" // bad: the door's
	_ "os/exec"                                // bad: the door's
	_ "sigs.k8s.io/knftables"                  // bad: nftables
)
