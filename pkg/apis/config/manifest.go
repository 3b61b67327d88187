package config

import (
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/seed-11a05479/kube-proxy/pkg/userfile"
)

// maxManifestSize is the maximum size of a manifest in bytes: a List may contain all ConfigMaps of a cluster.
const maxManifestSize = 64 << 20

// ReadManifest reads a configuration from a file or, if name is "-", from stdin. Unlike ReadFile it also accepts a
// ConfigMap that contains a configuration, a List with such a ConfigMap, or documents with one, as printed by kubectl.
func ReadManifest(name string, stdin io.Reader) (*File, error) {
	name, data, err := userfile.ReadArgument(name, stdin, maxManifestSize)
	if err != nil {
		return nil, err
	}
	held, err := inConfigMaps(name, data)
	switch {
	case err != nil:
		return nil, err
	case held == nil:
		if len(data) > MaxSize {
			return nil, userfile.TooLarge(name, MaxSize)
		}
		return ParseFile(name, data)
	case len(held) == 1:
		return ParseFile(held[0].name, held[0].text)
	}
	var places []string
	for _, c := range held {
		places = append(places, c.place)
	}
	return nil, Problems{{File: name, Detail: fmt.Sprintf("contains %d configurations, want one: %s", len(held), strings.Join(places, ", "))}}
}

// content is a configuration in a ConfigMap.
type content struct {
	name  string // of the file, for messages
	place string // in the file
	text  []byte
}

// inConfigMaps returns the configurations in the ConfigMaps of a file; nil if it contains no ConfigMap and no List, or
// a configuration that is in none.
func inConfigMaps(name string, data []byte) ([]content, error) {
	docs, errs := userfile.Split(name, data)
	if len(errs) > 0 {
		return nil, nil // ParseFile reports the error
	}
	var objects []*yaml.Node
	manifest := false
	for _, doc := range docs {
		root, errs := doc.Node()
		if len(errs) > 0 {
			return nil, nil
		}
		switch kind, _ := scalarField(root, "kind"); kind {
		case Kind:
			return nil, nil
		case "ConfigMap":
			manifest, objects = true, append(objects, root)
		case "List", "ConfigMapList":
			manifest = true
			if items := child(root, "items"); items != nil {
				objects = append(objects, items.Content...)
			}
		}
	}
	if !manifest {
		return nil, nil
	}
	var found []content
	for _, object := range objects {
		found = append(found, inConfigMap(name, object)...)
	}
	if len(found) == 0 {
		return nil, Problems{{File: name, Detail: "no ConfigMap in it contains a " + Kind + "; " + wanted()}}
	}
	return found, nil
}

// inConfigMap returns the configurations in one ConfigMap. Lines in a literal block are those of the file; any other
// scalar has its own lines.
func inConfigMap(name string, object *yaml.Node) (found []content) {
	data := child(object, "data")
	for i := 0; data != nil && i+1 < len(data.Content); i += 2 {
		key, value := data.Content[i].Value, data.Content[i+1]
		inner, errs := userfile.Split(key, []byte(value.Value)) // the file's own name says nothing about it
		if value.Kind != yaml.ScalarNode || len(errs) > 0 || len(inner) == 0 {
			continue
		}
		// A value that looks like a configuration and cannot be parsed counts as one, so that its errors are reported.
		if root, errs := inner[0].Node(); len(errs) == 0 {
			if kind, _ := scalarField(root, "kind"); kind != Kind {
				continue
			}
		} else if !strings.Contains(value.Value, "kind: "+Kind) {
			continue
		}
		namespace, _ := scalarField(child(object, "metadata"), "namespace")
		called, _ := scalarField(child(object, "metadata"), "name")
		c := content{name: name, place: fmt.Sprintf("%s/%s %s (line %d)", namespace, called, key, data.Content[i].Line), text: []byte(value.Value)}
		if value.Style&yaml.LiteralStyle != 0 {
			c.text = append([]byte(strings.Repeat("\n", value.Line)), c.text...)
		} else {
			c.name = fmt.Sprintf("%s, data[%q]", name, key)
		}
		found = append(found, c)
	}
	return found
}

// child returns the value of a field of a mapping; nil if there is none.
func child(mapping *yaml.Node, name string) *yaml.Node {
	for i := 0; mapping != nil && mapping.Kind == yaml.MappingNode && i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == name {
			return mapping.Content[i+1]
		}
	}
	return nil
}
