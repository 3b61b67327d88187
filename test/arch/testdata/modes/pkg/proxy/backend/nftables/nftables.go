// Package nftables is part of an example.
package nftables

// Name may be named here.
const Name = "nftables_failures_total"
