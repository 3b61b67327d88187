// Package nftables has files that use each other.
package nftables
