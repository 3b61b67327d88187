// Package arch checks the architecture and style rules of this repository.
//
// It reads the source of this module and of its nested modules, and reports every violation of a rule: the import table
// (imports.go), files that use each other (circles.go), pure packages (pure.go), places
// that name a proxy mode (modes.go), packages that only wire and parse (wiring.go), size limits of files, functions and
// parameter lists (budgets.go), required documentation (docs.go), immutable package variables (variables.go), the names
// of tests that need a kernel (names.go), and subtests in network namespaces (subtests.go).
//
// Each rule is a function from the Tree to its violations, listed in [Rules]. The tests run all rules twice: on the
// repository, which must have no violations, and on the small examples in testdata, each of which must have the
// violations in its golden file. A new rule must be added to the list and needs an example; a test checks both.
package arch
