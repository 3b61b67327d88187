// Package nftables is part of an example.
package nftables

import (
	_ "sigs.k8s.io/knftables"
)
