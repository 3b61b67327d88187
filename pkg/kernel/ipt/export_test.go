package ipt

import "context"

// Encodable are lines with a table and a rule of IPv4 that the encoder knows.
var Encodable = encodable

// EncodableIn6 returns a rule of Encodable for IPv6.
func EncodableIn6(rule string) string { return addresses6.Replace(in6(rule)) }

// RuleOf returns the value of a rule's text.
func RuleOf(text string) (r Rule, ok bool) { return ruleOf(text) }

// Encodes reports whether the encoder knows a rule.
func Encodes(family Family, r Rule) bool {
	_, ok := r.Expressions(family)
	return ok
}

// Restorer is the kernel's tables or the fake's.
type Restorer interface {
	Tables
	Restore(ctx context.Context, input string) error
}

// What the tests of this package and of its fake share.
var (
	OpenKernel = openKernel
	In6        = in6
)
