// Package app is part of an example.
package app

import (
	_ "math" // bad: numbers
	"net/netip" // bad: addresses
	_ "strings"
)

// few has 10 branches.
func few(a, b bool, list []int) {
	if a && b || a && b || a && b || a && b {
		return
	}
	for range list {
		return
	}
}

func many(a bool, x int) bool { // bad: 11 branches
	switch x {
	case 1:
		return a || a || a || a || a
	case 2, 3:
		return a || a || a || a || a
	case 4:
		return false
	default:
		return a
	}
}

func nested(list [][]netip.Addr) {
	for _, inner := range list {
		for range inner { // bad: a loop within a loop
			return
		}
	}
	for range list {
		return
	}
}
