package v1alpha2

import _ "embed"

//go:embed types.go
var typesSource string

// TypesSource is the Go source of this version's types. Their doc comments are read from it, so that what
// "config explain" and docs/config.md say cannot differ from the source.
func TypesSource() string { return typesSource }
