// Package iptables is part of an example.
package iptables

import (
	_ "house.test/pkg/proxy/backend/backendtest"
	_ "house.test/pkg/proxy/backend/nftables" // bad: the other backend, in a test too
)
