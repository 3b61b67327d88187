// Package iptables is part of an example.
package iptables

import (
	_ "house.test/pkg/kernel/nft" // bad: the other backend, in a test too
	_ "house.test/pkg/proxy/backend/backendtest"
)
