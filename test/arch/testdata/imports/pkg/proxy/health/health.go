// Package health is part of an example.
package health

import (
	_ "house.test/pkg/kernel/conntrack" // bad: not its own door
	_ "house.test/pkg/proxy/node"       // bad: another observer
	_ "house.test/pkg/proxy/plan"
)
