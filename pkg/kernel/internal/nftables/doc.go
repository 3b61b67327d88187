// Package nftables contains what the doors nft and ipt share to write to nf_tables: the expressions of rules, and a socket
// that commits batches.
package nftables
