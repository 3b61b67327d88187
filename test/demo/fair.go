//go:build linux

package main

import "math"

// surprise is how unlikely a share must be before it counts as wrong, as a natural logarithm: one in ten thousand
// million. The demo asks some hundred times, so it is wrong about an even spread once in a hundred million runs.
const surprise = 23

// fair tells whether an endpoint that got n of all connections may well have been chosen evenly among so many. It is
// the bound of Chernoff and Hoeffding: the chance of a share of n/all or further off is at most e^(-all·D), where D is
// the divergence of that share from the fair one.
func fair(n, all, among int) bool {
	if among == 1 {
		return n == all
	}
	share, even := float64(n)/float64(all), 1/float64(among)
	return float64(all)*(divergence(share, even)+divergence(1-share, 1-even)) < surprise
}

// divergence is one summand of the relative entropy, in nats.
func divergence(p, q float64) float64 {
	if p == 0 {
		return 0
	}
	return p * math.Log(p/q)
}
