// Package arch checks what the linters of .golangci.yml cannot: which of our packages import which (imports.go), and a few rules of this
// repository (rules_test.go). Its tests apply each rule to this repository, which must not violate it, and to a small tree in testdata, in
// which it must find exactly the lines that have a comment "bad:".
package arch
