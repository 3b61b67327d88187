// Package explain generates the reference of the configuration's fields. It reads the doc comments and types from v1alpha2's
// source, the defaults from its defaulting and the old names from v1alpha1's table, so that it always agrees with the code.
package explain

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strings"

	sigsyaml "sigs.k8s.io/yaml"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/config"
	"github.com/seed-11a05479/kube-proxy/pkg/apis/config/configfile"
	"github.com/seed-11a05479/kube-proxy/pkg/apis/config/v1alpha1"
	"github.com/seed-11a05479/kube-proxy/pkg/apis/config/v1alpha2"
)

// Field is one field of v1alpha2.
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
	// Section means that it has fields of its own.
	Section bool
}

// Fields returns all fields in the order of the source; a section comes before its fields.
func Fields() ([]Field, error) {
	file, err := parser.ParseFile(token.NewFileSet(), "types.go", v1alpha2.TypesSource(), parser.ParseComments)
	if err != nil {
		return nil, fmt.Errorf("the types of %s cannot be read: %w", v1alpha2.Version, err)
	}
	r := reader{structs: map[string]*ast.StructType{}}
	if r.defaults, err = defaultValues(v1alpha2.Version); err != nil {
		return nil, err
	}
	if r.oldDefaults, err = defaultValues(v1alpha1.Version); err != nil {
		return nil, err
	}
	for _, declaration := range file.Decls {
		if types, ok := declaration.(*ast.GenDecl); ok && types.Tok == token.TYPE {
			for _, spec := range types.Specs {
				if s, ok := spec.(*ast.TypeSpec).Type.(*ast.StructType); ok {
					r.structs[spec.(*ast.TypeSpec).Name.Name] = s
				}
			}
		}
	}
	r.read(config.Kind, "")
	return r.fields, nil
}

// Find returns the field at a path and, for a section, the fields in it. The path may be one of v1alpha1.
func Find(fields []Field, path string) (Field, []Field, error) {
	at := func(path string) int {
		return slices.IndexFunc(fields, func(f Field) bool { return strings.EqualFold(f.Path, path) })
	}
	i := at(path)
	if i < 0 {
		i = at(v1alpha1.LatestPath(path))
	}
	if i < 0 && v1alpha1.LatestPath(path) == "" {
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

// reader collects fields from the syntax tree of the types.
type reader struct {
	structs map[string]*ast.StructType
	// defaults and oldDefaults are those of v1alpha2 and v1alpha1, both with the paths of v1alpha2.
	defaults, oldDefaults map[string]any
	fields                []Field
}

// read collects the fields of the struct at prefix.
func (r *reader) read(name, prefix string) {
	for _, f := range r.structs[name].Fields.List {
		if len(f.Names) == 0 {
			continue // apiVersion and kind, which every file has
		}
		tag := strings.Trim(f.Tag.Value, "`")
		jsonName, _, _ := strings.Cut(strings.TrimSuffix(strings.TrimPrefix(tag, `json:"`), `"`), ",")
		path := prefix + jsonName
		words, section := r.words(f.Type)
		old := v1alpha1.Path(path, "")
		if old != v1alpha1.Path(path, config.ProxyModeNFTables) {
			old = "<active mode>." + path[strings.LastIndex(path, ".")+1:]
		}
		def, oldDefault := defaultOf(r.defaults, path), defaultOf(r.oldDefaults, path)
		if oldDefault == def || old == "" && oldDefault != "false" {
			oldDefault = ""
		}
		r.fields = append(r.fields, Field{Path: path, Type: words, Default: def, OldDefault: oldDefault, V1alpha1: old,
			Doc: strings.Join(strings.Fields(f.Doc.Text()), " "), Section: section != ""})
		if section != "" {
			dot := "."
			if _, list := f.Type.(*ast.ArrayType); list {
				dot = "[]."
			}
			r.read(section, path+dot)
		}
	}
}

// words returns the type of values in words and, for a section, the struct with its fields.
func (r *reader) words(t ast.Expr) (words, section string) {
	switch t := t.(type) {
	case *ast.StarExpr:
		return r.words(t.X)
	case *ast.MapType:
		return "booleans by name", ""
	case *ast.ArrayType:
		element, section := r.words(t.Elt)
		return "list of " + element + "s", section
	case *ast.SelectorExpr:
		if t.Sel.Name == "Duration" {
			return "duration", ""
		}
		return "size", ""
	case *ast.Ident:
		if r.structs[t.Name] != nil {
			return "section", t.Name
		}
		switch t.Name {
		case "bool":
			return "boolean", ""
		case "int32", "uint32":
			return "integer", ""
		case "float32":
			return "number", ""
		}
	}
	return "string", ""
}

// defaultOf returns the default of a field as YAML. It ignores empty strings and lists.
func defaultOf(defaults map[string]any, path string) string {
	var value any = defaults
	for name := range strings.SplitSeq(path, ".") {
		section, ok := value.(map[string]any)
		if !ok {
			return ""
		}
		value = section[name]
	}
	switch value := value.(type) {
	case nil, map[string]any, []any:
		return ""
	default:
		return fmt.Sprint(value)
	}
}

// defaultValues returns the default configuration of a version, in the form of v1alpha2.
func defaultValues(version string) (map[string]any, error) {
	cfg, err := configfile.Defaults(version)
	if err != nil {
		return nil, err
	}
	data, err := configfile.Encode(cfg, v1alpha2.Version)
	if err != nil {
		return nil, err
	}
	values := map[string]any{}
	return values, sigsyaml.Unmarshal(data, &values)
}
