package config

import (
	"fmt"
	"slices"
	"strings"
)

// Field is one field of v1alpha2. build/codegen writes [Fields] from the doc comments and types in pkg/apis/config/types.go, the defaults of
// both versions, and the table of old names in v1alpha1.
type Field struct {
	// Path is its path from the root, such as linux.conntrack.min; an item of a list is written as [].
	Path string
	// Type is the type of its values in words: string, boolean, duration, list of strings, section.
	Type string
	// Default is the default, as YAML; empty for sections and for fields without one.
	Default string
	// OldDefault is the default in v1alpha1, and of a flag, if it differs; empty if it is the same.
	OldDefault string
	// V1alpha1 is its path in v1alpha1; empty if there is none.
	V1alpha1 string
	// Doc describes its effect and unit in one paragraph.
	Doc string
}

// FindField returns the field at a path and, for a section, the fields in it. The path may be one of v1alpha1.
func FindField(fields []Field, path string) (Field, []Field, error) {
	at := func(path string) int {
		return slices.IndexFunc(fields, func(f Field) bool { return strings.EqualFold(f.Path, path) })
	}
	i := at(path)
	if i < 0 {
		i = at(latestPath(path))
	}
	if i < 0 && latestPath(path) == "" {
		return Field{}, nil, fmt.Errorf("field %q of v1alpha1 has no effect, and v1alpha2 does not have it", path)
	}
	if i < 0 {
		return Field{}, nil, fmt.Errorf("no field %q; \"kube-proxy config explain\" lists all", path)
	}
	var within []Field
	for _, f := range fields {
		if rest, found := strings.CutPrefix(f.Path, fields[i].Path); found && (strings.HasPrefix(rest, ".") || strings.HasPrefix(rest, "[].")) {
			within = append(within, f)
		}
	}
	return fields[i], within, nil
}
