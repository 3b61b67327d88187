package config

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	logsapi "k8s.io/component-base/logs/api/v1"
	upstream "k8s.io/kube-proxy/config/v1alpha1"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/seed-11a05479/kube-proxy/pkg/userfile"
)

// maxProblems limits the problems that are reported for one file.
const maxProblems = 50

// walk compares a tree of YAML nodes with a Go type. It removes values that cannot be decoded, so that the rest can be.
type walk struct {
	file    string
	version string
	wrong   Problems // values that cannot be decoded
	strict  Problems // unknown and duplicate fields
}

// walkTree walks a document of a version.
func walkTree(file, version string, root *yaml.Node) *walk {
	w := &walk{file: file, version: version}
	t := reflect.TypeFor[KubeProxyConfiguration]()
	if version == V1alpha1 {
		t = reflect.TypeFor[upstream.KubeProxyConfiguration]()
	}
	w.value(root, t, "")
	return w
}

// value checks that a node can be decoded into a type.
func (w *walk) value(n *yaml.Node, t reflect.Type, path string) {
	if len(w.wrong)+len(w.strict) >= maxProblems {
		return
	}
	if n.Kind == yaml.AliasNode {
		n = n.Alias // the parser resolves an alias to its target, never to another alias
	}
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if n.Kind == yaml.ScalarNode && n.Tag == "!!null" {
		return
	}
	switch {
	case reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()):
		w.scalar(n, t, path)
	case t.Kind() == reflect.Struct:
		if w.kind(n, yaml.MappingNode, path, "a section with fields") {
			fields := map[string]reflect.Type{}
			jsonFields(t, fields)
			w.mapping(n, members{named: fields}, path, map[*yaml.Node]bool{})
		}
	case t.Kind() == reflect.Map:
		if w.kind(n, yaml.MappingNode, path, "a set of names with values") {
			w.mapping(n, members{all: t.Elem()}, path, map[*yaml.Node]bool{})
		}
	case t.Kind() == reflect.Slice:
		if w.kind(n, yaml.SequenceNode, path, "a list") {
			for i, item := range n.Content {
				w.value(item, t.Elem(), userfile.Element(path, i))
			}
		}
	default:
		w.scalar(n, t, path)
	}
}

// members are the types of a mapping's values: by the names of fields, or one for all names.
type members struct {
	named map[string]reflect.Type
	all   reflect.Type
}

func (m members) of(name string) (t reflect.Type, known bool) {
	if m.all != nil {
		return m.all, true
	}
	t, known = m.named[name]
	return t, known
}

// mapping checks the fields of a mapping. Merged mappings are checked too, each once, because merge keys may form a loop.
func (w *walk) mapping(n *yaml.Node, fields members, path string, merged map[*yaml.Node]bool) {
	merged[n] = true
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		at := userfile.Member(path, key.Value)
		if key.Tag == "!!merge" {
			if value.Kind == yaml.AliasNode && value.Alias.Kind == yaml.MappingNode && !merged[value.Alias] {
				w.mapping(value.Alias, fields, path, merged)
			}
			continue
		}
		if first, again := seen[key.Value]; again {
			w.strict = append(w.strict, Problem{File: w.file, Line: key.Line, Field: at,
				Detail: fmt.Sprintf("duplicate field; the first is in line %d", first)})
		}
		seen[key.Value] = key.Line
		t, known := fields.of(key.Value)
		if !known {
			w.strict = append(w.strict, Problem{File: w.file, Line: key.Line, Field: at,
				Detail: "unknown field" + w.hint(at, key.Value, fields.named)})
			continue
		}
		w.value(value, t, at)
	}
}

// hint suggests where an unknown field belongs, or a field with a similar name.
func (w *walk) hint(path, name string, fields map[string]reflect.Type) string {
	if w.version == V1alpha1 {
		if here := PathInV1alpha1(path, ""); here != path && here != "" {
			return fmt.Sprintf("; in v1alpha1 it is %s", here)
		}
	} else if latest := latestPath(path); latest == "" {
		return "; v1alpha2 has dropped it, as it had no effect"
	} else if latest != path {
		return fmt.Sprintf("; in v1alpha2 it is %s", latest)
	}
	for candidate := range fields {
		if strings.EqualFold(candidate, name) {
			return fmt.Sprintf("; did you mean %s?", candidate)
		}
	}
	return ""
}

// kind reports whether a node has the kind that its type needs.
func (w *walk) kind(n *yaml.Node, want yaml.Kind, path, what string) bool {
	if n.Kind != want {
		w.reject(n, path, what)
		return false
	}
	return true
}

// scalar checks that a scalar can be decoded, with the decoder that will decode it.
func (w *walk) scalar(n *yaml.Node, t reflect.Type, path string) {
	if n.Kind == yaml.ScalarNode {
		asJSON, err := scalarJSON(n)
		if err == nil {
			err = json.Unmarshal(asJSON, reflect.New(t).Interface())
		}
		if err == nil {
			return
		}
	}
	w.reject(n, path, wants(t, n))
}

// reject records a value that cannot be decoded and removes it from the tree.
func (w *walk) reject(n *yaml.Node, path, want string) {
	w.wrong = append(w.wrong, Problem{File: w.file, Line: n.Line, Field: path, Detail: fmt.Sprintf("want %s, not %s", want, describe(n))})
	*n = yaml.Node{Kind: yaml.ScalarNode, Tag: rejectedTag, Anchor: n.Anchor}
}

// rejectedTag marks a value that was removed from the tree.
const rejectedTag = "!rejected"

// prune removes rejected fields from a mapping, and replaces rejected items of a list by null, so that other items keep
// their index.
func prune(n *yaml.Node) {
	var kept []*yaml.Node
	for i, child := range n.Content {
		field := n.Kind == yaml.MappingNode
		switch {
		case field && i%2 == 1:
			continue // the key's tag decides
		case field && n.Content[i+1].Tag == rejectedTag:
			continue
		case field:
			kept = append(kept, child, n.Content[i+1])
			prune(n.Content[i+1])
			continue
		case child.Tag == rejectedTag:
			child.Tag, child.Value = "!!null", "null"
		}
		prune(child)
		kept = append(kept, child)
	}
	n.Content = kept
}

// scalarJSON returns the JSON that sigs.k8s.io/yaml generates for a value.
func scalarJSON(n *yaml.Node) ([]byte, error) {
	const quoted = yaml.DoubleQuotedStyle | yaml.SingleQuotedStyle | yaml.LiteralStyle | yaml.FoldedStyle
	if n.Style&quoted != 0 {
		return json.Marshal(n.Value)
	}
	return sigsyaml.YAMLToJSON([]byte(n.Value))
}

// wants describes the values of a type.
func wants(t reflect.Type, n *yaml.Node) string {
	switch t {
	case reflect.TypeFor[metav1.Duration](), reflect.TypeFor[logsapi.TimeOrMetaDuration]():
		return `a duration with its unit, such as "30s" or "1h30m"`
	case reflect.TypeFor[resource.QuantityValue]():
		return "a size in bytes, such as 512, 1Ki or 5M"
	}
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		if n.Kind == yaml.ScalarNode {
			return "a string in quotes"
		}
		return "a string"
	case reflect.Uint32:
		return "a whole number from 0 to 4294967295"
	case reflect.Int32:
		return "a whole number from -2147483648 to 2147483647"
	default:
		return "a number"
	}
}

// describe returns what a node is, in words.
func describe(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a section with fields"
	case yaml.SequenceNode:
		return "a list"
	case yaml.AliasNode:
		return "an alias"
	}
	value := n.Value
	if len(value) > 40 {
		value = value[:40] + "…"
	}
	switch n.Tag {
	case "!!int", "!!float":
		return "the number " + value
	case "!!bool":
		return value
	default:
		return fmt.Sprintf("%q", value)
	}
}

// jsonFields returns the fields of a struct, including embedded structs, by their names in a file.
func jsonFields(t reflect.Type, into map[string]reflect.Type) {
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "":
			jsonFields(f.Type, into)
		case name != "" && name != "-":
			into[name] = f.Type
		}
	}
}
