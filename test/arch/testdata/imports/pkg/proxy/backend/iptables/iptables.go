// Package iptables is part of an example.
package iptables

import (
	_ "house.test/pkg/kernel/ipt"
	_ "house.test/pkg/proxy/backend/backendtest" // bad: a suite of tests in the program
	_ "house.test/pkg/proxy/plan"
)
