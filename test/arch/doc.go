// Package arch holds the house to its own rules.
//
// It reads the source of this module, and of the modules nested in it, and reports every place that breaks a rule:
// who may import whom (imports.go, a table to read), what must be pure (pure.go), the budgets of files, functions
// and parameters (budgets.go), what must be documented (docs.go), what may not change at package level
// (variables.go), and how tests that need a kernel are named (names.go).
//
// Each rule is a function from the Tree to its violations, listed in [Rules]. The tests run all of them twice: over the
// real tree, where nothing may be found, and over the small bad examples in testdata, where each rule must find what
// the example's golden file says. To add a rule, add it to the list and give it an example; the test insists on both.
package arch
