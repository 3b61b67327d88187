// Package nftables renders a plan as nf_tables rules whose number does not depend on the cluster: a fixed
// skeleton of chains, and Services and endpoints as elements of a few maps. README.md tells the layout and
// what each connection meets.
//
// The stages are pure: render makes a ruleset of a plan, diff a patch of two rulesets; apply writes a patch
// through the door pkg/kernel/nft, and read makes a ruleset of what is there.
package nftables
