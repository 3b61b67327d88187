// Package conntrack is part of an example.
package conntrack

import (
	_ "house.test/pkg/kernel/ipt" // bad: another door
)
