//go:build linux

package main

import "math"

// unlikely is the natural logarithm of the probability below which a share counts as wrong: 1e-10. The demo checks about a
// hundred shares, so it rejects an even distribution once in a hundred million runs.
const unlikely = 23

// fair reports whether it is plausible that an endpoint got n of all connections if each endpoint is equally likely. It
// uses the Chernoff-Hoeffding bound: the probability of a share of n/all or more extreme is at most e^(-all·D), where D
// is the divergence of that share from the fair one.
func fair(n, all, among int) bool {
	if among == 1 {
		return n == all
	}
	share, even := float64(n)/float64(all), 1/float64(among)
	return float64(all)*(divergence(share, even)+divergence(1-share, 1-even)) < unlikely
}

// divergence returns one term of the relative entropy, in nats.
func divergence(p, q float64) float64 {
	if p == 0 {
		return 0
	}
	return p * math.Log(p/q)
}
