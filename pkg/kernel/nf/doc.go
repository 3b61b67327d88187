// Package nf speaks nf_tables' netlink protocol (linux/netfilter/nf_tables.h).
package nf
