//go:build linux

package manifests

import (
	"bytes"
	"encoding/json"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/config"
)

var update = flag.Bool("update", false, "write the configuration's schema into values.schema.json")

// choices are the values of the fields that have only some. ipvs is left out: such a proxy does not start.
var choices = map[string][]any{
	"mode":            {"iptables", "nftables"},
	"detectLocalMode": {"", "ClusterCIDR", "NodeCIDR", "BridgeInterface", "InterfaceNamePrefix"},
	"ipFamilyPolicy":  {"", "RequireDualStack", "PreferDualStack", "SingleStack"},
}

// types are the JSON schemas of the configuration's types.
var types = map[string]object{
	"string":           {"type": "string"},
	"boolean":          {"type": "boolean"},
	"integer":          {"type": "integer"},
	"number":           {"type": "number"},
	"size":             {"type": []any{"string", "integer"}},
	"duration":         {"type": "string", "pattern": `^([0-9]+(\.[0-9]+)?(h|m|s|ms|us|ns))+$|^0$`},
	"list of strings":  {"type": "array", "items": object{"type": "string"}},
	"booleans by name": {"type": "object", "additionalProperties": object{"type": "boolean"}},
}

// section is the schema of an object with no fields yet.
func section(description string) object {
	s := object{"type": "object", "additionalProperties": false, "properties": object{}}
	if description != "" {
		s["description"] = description
	}
	return s
}

// configSchema returns the JSON schema of the configuration.
func configSchema(t *testing.T) object {
	t.Helper()
	root := section("The configuration of kube-proxy, kubeproxy.config.k8s.io/v1alpha2.")
	for _, field := range config.Fields() {
		path := strings.Split(field.Path, ".")
		if strings.Contains(field.Path, "[]") {
			continue // the fields of the items of a list: kube-proxy checks these
		}
		at := root
		for _, name := range path[:len(path)-1] {
			at = at["properties"].(object)[name].(object)
		}
		properties, name := at["properties"].(object), path[len(path)-1]
		switch known := types[field.Type]; {
		case field.Type == "section":
			properties[name] = section(field.Doc)
		case known != nil:
			s := object{"description": field.Doc}
			maps.Copy(s, known)
			if values := choices[field.Path]; values != nil {
				s["enum"] = values
			}
			properties[name] = s
		case strings.HasPrefix(field.Type, "list of "):
			properties[name] = object{"description": field.Doc, "type": "array"}
		default:
			t.Fatalf("%s has type %q, which has no schema", field.Path, field.Type)
		}
	}
	return root
}

// TestSchemaHasEveryField compares the schema's section for the configuration with the configuration's fields; with -update it
// writes that section.
func TestSchemaHasEveryField(t *testing.T) {
	path := filepath.Join(chart, "values.schema.json")
	old, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	schema := object{}
	if err := json.Unmarshal(old, &schema); err != nil {
		t.Fatal(err)
	}
	schema["$defs"].(object)["config"] = configSchema(t)
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(schema); err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(path, text.Bytes(), 0o644); err != nil { //nolint:gosec // a file of the repository
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(string(old), text.String()); diff != "" {
		t.Errorf("the schema differs from the configuration; go test -run Schema -update writes it:\n%s", diff)
	}
}

// TestSchemaHasEveryValue checks that the schema has exactly the values of values.yaml, so that a misspelled one is an error.
func TestSchemaHasEveryValue(t *testing.T) {
	read := func(name string) object {
		text, err := os.ReadFile(filepath.Join(chart, name))
		if err != nil {
			t.Fatal(err)
		}
		return parse(t, string(text))
	}
	values, schema := read("values.yaml"), read("values.schema.json")
	names := func(o object) []string { return slices.Sorted(maps.Keys(o)) }
	properties := schema["properties"].(object)
	if diff := cmp.Diff(names(values), names(properties)); diff != "" {
		t.Errorf("values.yaml (-) and the schema (+) have other values:\n%s", diff)
	}
}
