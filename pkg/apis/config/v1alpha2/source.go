package v1alpha2

import _ "embed"

//go:embed types.go
var typesSource string

// TypesSource is the Go source of this version's types. "config explain" and docs/config.md are generated from their
// doc comments.
func TypesSource() string { return typesSource }
