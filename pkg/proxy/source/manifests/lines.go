package manifests

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	yamlnodes "go.yaml.in/yaml/v3"
)

// place is where a field stands. Paths are written as the API's errors write them: spec.ports[0].port.
type place struct {
	path string
	at   int64 // a line, or an offset, as the lister says
}

// lineTable lists the lines, from 1, that the fields of a document stand in, parents before children.
type lineTable func(text []byte) []place

// find tells where a field stands, or where its nearest parent does if the field itself is not there. Of two
// fields of one path the later counts.
func find(places []place, path string) (at int64, found bool) {
	longest := -1
	for _, p := range places {
		if len(p.path) >= longest && contains(p.path, path) {
			at, longest, found = p.at, len(p.path), true
		}
	}
	return at, found
}

// contains tells whether the field at path is the one at parent or inside it.
func contains(parent, path string) bool {
	rest, ok := strings.CutPrefix(path, parent)
	return ok && (parent == "" || rest == "" || rest[0] == '.' || rest[0] == '[')
}

func member(parent, name string) string {
	if parent == "" || name == "" {
		return parent + name
	}
	return parent + "." + name
}

func element(parent string, index int) string { return fmt.Sprintf("%s[%d]", parent, index) }

// yamlLines is the lineTable of YAML.
func yamlLines(text []byte) []place {
	var root yamlnodes.Node
	if yamlnodes.Unmarshal(text, &root) != nil || len(root.Content) == 0 {
		return nil
	}
	var places []place
	var visit func(n *yamlnodes.Node, path string, line int)
	visit = func(n *yamlnodes.Node, path string, line int) {
		places = append(places, place{path, int64(line)})
		switch n.Kind {
		case yamlnodes.MappingNode:
			for i := 0; i+1 < len(n.Content); i += 2 {
				visit(n.Content[i+1], member(path, n.Content[i].Value), n.Content[i].Line)
			}
		case yamlnodes.SequenceNode:
			for i, item := range n.Content {
				visit(item, element(path, i), item.Line)
			}
		}
	}
	visit(root.Content[0], "", root.Content[0].Line)
	return places
}

// jsonLines is the lineTable of JSON.
func jsonLines(text []byte) []place {
	places := jsonOffsets(text)
	line, from := int64(1), int64(0)
	for i, p := range places { // offsets only grow
		line += int64(bytes.Count(text[from:p.at], []byte("\n")))
		from, places[i].at = p.at, line
	}
	return places
}

// jsonOffsets lists, in the order of the text, where every value of a JSON document, or its name, ends or
// opens.
func jsonOffsets(text []byte) []place {
	decoder := json.NewDecoder(bytes.NewReader(text))
	var places []place
	var visit func(path string) bool
	visit = func(path string) bool {
		token, err := decoder.Token()
		if err != nil {
			return false
		}
		places = append(places, place{path, decoder.InputOffset()})
		delim, nested := token.(json.Delim)
		for i := 0; nested && decoder.More(); i++ {
			inside := element(path, i)
			if delim == '{' {
				key, err := decoder.Token()
				if err != nil {
					return false
				}
				inside = member(path, fmt.Sprint(key))
			}
			if !visit(inside) {
				return false
			}
		}
		if nested {
			_, err = decoder.Token()
		}
		return err == nil
	}
	visit("")
	return places
}

// pathAt tells which field of a JSON document a decoder was reading when it had read offset bytes.
func pathAt(text []byte, offset int64) string {
	path := ""
	for _, p := range jsonOffsets(text) {
		if p.at > offset {
			break
		}
		path = p.path
	}
	return path
}
