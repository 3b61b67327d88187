// Package iptables renders a plan as iptables rules, in IPv4 and IPv6, for the nft and the legacy variant. README.md
// tells the layout and what each connection meets.
//
// The stages are pure: render makes a ruleset of a plan, diff a patch of two rulesets; apply writes a patch through the
// door pkg/kernel/ipt, in steps each of which leaves a correct dataplane, and parse reads a ruleset back.
package iptables
