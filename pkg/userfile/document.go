package userfile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	sigsyaml "sigs.k8s.io/yaml"
)

// LineError is an error in a line of a file.
type LineError struct {
	Line int // from 1
	Err  error
}

// Document is one document of a file of YAML or JSON, whatever object it describes.
type Document struct {
	// Line is the line of the file where Text begins, from 1.
	Line int
	// Text is the document as in the file, except that tabs in JSON are replaced by spaces. It is valid YAML in either case.
	Text []byte

	isJSON bool
	lines  int
	root   *yaml.Node // nil until Node has parsed Text
}

// Split splits a file into documents, without those that contain only comments, directives and markers. A file whose
// name ends in .json, or that is a sequence of JSON values, is read as JSON, and only then can there be errors: the
// documents are those before the first one. Any other file is split at the document markers of YAML (1.2, 9.1.2).
func Split(name string, data []byte) ([]*Document, []*LineError) {
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	named := strings.EqualFold(filepath.Ext(name), ".json")
	if start := bytes.TrimSpace(data); named || len(start) > 0 && start[0] == '{' {
		if docs, errs := splitJSON(data); named || len(errs) == 0 {
			return docs, errs
		}
	}
	return splitYAML(data), nil
}

// splitJSON splits consecutive JSON values.
func splitJSON(data []byte) (docs []*Document, errs []*LineError) {
	decoder := json.NewDecoder(bytes.NewReader(data))
	for {
		var value json.RawMessage
		err := decoder.Decode(&value)
		if err == io.EOF {
			return docs, nil
		}
		if err != nil {
			at := int64(len(data))
			if syntax := (*json.SyntaxError)(nil); errors.As(err, &syntax) {
				at = syntax.Offset
			}
			return docs, []*LineError{{lineAt(data, at), fmt.Errorf("not JSON: %w", err)}}
		}
		start := decoder.InputOffset() - int64(len(value))
		// JSON allows tabs between tokens and YAML does not; JSON has them nowhere else.
		value = bytes.ReplaceAll(value, []byte("\t"), []byte(" "))
		docs = append(docs, &Document{Line: lineAt(data, start), Text: value, isJSON: true, lines: 1 + bytes.Count(value, []byte("\n"))})
	}
}

// lineAt returns the line of the byte at an offset.
func lineAt(data []byte, offset int64) int {
	return 1 + bytes.Count(data[:min(max(offset, 0), int64(len(data)))], []byte("\n"))
}

func splitYAML(data []byte) (docs []*Document) {
	for start, line := 0, 1; start < len(data); {
		end, lines, blank := nextDocument(data[start:])
		if !blank {
			docs = append(docs, &Document{Line: line, Text: data[start : start+end], lines: lines})
		}
		start, line = start+end, line+lines
	}
	return docs
}

// nextDocument returns the number of bytes and lines of the first document of data, and whether it is blank.
func nextDocument(data []byte) (size, lines int, blank bool) {
	blank = true
	for size < len(data) {
		length := bytes.IndexByte(data[size:], '\n') + 1
		if length == 0 {
			length = len(data) - size
		}
		line := data[size : size+length]
		start, end := isMarker(line, "---"), isMarker(line, "...")
		if lines > 0 && start {
			break
		}
		size += length
		lines++
		if end {
			break
		}
		if start {
			line = line[len("---"):]
		}
		line = bytes.TrimSpace(line)
		blank = blank && (len(line) == 0 || line[0] == '#' || line[0] == '%')
	}
	return size, lines, blank
}

func isMarker(line []byte, marker string) bool {
	rest, found := bytes.CutPrefix(line, []byte(marker))
	return found && (len(rest) == 0 || bytes.ContainsRune([]byte(" \t\r\n"), rune(rest[0])))
}

// JSON converts the document to JSON. A duplicate key in a mapping is an error.
func (d *Document) JSON() ([]byte, []*LineError) {
	if d.isJSON {
		return d.Text, nil
	}
	converted, err := sigsyaml.YAMLToJSONStrict(d.Text)
	if err != nil {
		if _, errs := d.Node(); len(errs) > 0 {
			return nil, errs // the same errors as Node
		}
		return nil, d.syntaxErrors(err)
	}
	return converted, nil
}

// yamlMessage finds the lines in the text of a YAML library's error.
var yamlMessage = regexp.MustCompile(`line (\d+): ([^\n]+)`)

// syntaxErrors converts the error of a YAML library about the document.
func (d *Document) syntaxErrors(err error) (errs []*LineError) {
	for _, match := range yamlMessage.FindAllStringSubmatch(err.Error(), -1) {
		at, _ := strconv.Atoi(match[1])
		if strings.HasPrefix(match[2], "did not find expected") {
			at++ // the libraries' parsers, unlike their scanners, count lines from 0
		}
		errs = append(errs, &LineError{d.Line + min(max(at, 1), d.lines) - 1, fmt.Errorf("not YAML: %s", match[2])})
	}
	if len(errs) == 0 {
		errs = append(errs, &LineError{d.Line, fmt.Errorf("not YAML: %s", strings.TrimPrefix(err.Error(), "yaml: "))})
	}
	return errs
}

// Node parses the document into a tree with the lines of the file.
func (d *Document) Node() (*yaml.Node, []*LineError) {
	if d.root != nil {
		return d.root, nil
	}
	var document yaml.Node
	if err := yaml.Unmarshal(d.Text, &document); err != nil {
		return nil, d.syntaxErrors(err)
	}
	if len(document.Content) == 0 {
		return nil, []*LineError{{d.Line, errors.New("the document is empty")}}
	}
	d.root = document.Content[0]
	shift(d.root, d.Line-1)
	return d.root, nil
}

func shift(n *yaml.Node, lines int) {
	n.Line += lines
	for _, child := range n.Content {
		shift(child, lines)
	}
}

// LineOf returns the line of a field in the file, or of its nearest parent if the field is missing. Paths are written
// as in the API's errors: spec.ports[0].port.
func (d *Document) LineOf(path string) int {
	line, _ := d.Find(path)
	return line
}

// Find returns the same line as LineOf, and whether it is that of the field or of a parent other than the whole document.
func (d *Document) Find(path string) (line int, found bool) {
	n, errs := d.Node()
	if len(errs) > 0 {
		return d.Line, false
	}
	line = n.Line
	for path != "" {
		if n.Kind == yaml.AliasNode {
			n = n.Alias
		}
		child, at, rest := step(n, path, 0)
		if child == nil {
			break
		}
		n, line, path, found = child, at, rest, true
	}
	return line, found
}

// maxMerges limits how deep merge keys are followed, because they may form a loop.
const maxMerges = 8

// step returns the child of n that the path begins with. Among duplicate fields the last one counts, and any of them
// before merged ones.
func step(n *yaml.Node, path string, merges int) (child *yaml.Node, line int, rest string) {
	if n.Kind == yaml.SequenceNode {
		index, after, found := strings.Cut(strings.TrimPrefix(path, "["), "]")
		i, err := strconv.Atoi(index)
		if !found || err != nil || i >= len(n.Content) {
			return nil, 0, ""
		}
		return n.Content[i], n.Content[i].Line, strings.TrimPrefix(after, ".")
	}
	longest := -1
	for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.Tag == "!!merge" && value.Kind == yaml.AliasNode && merges < maxMerges && longest < 0 {
			child, line, rest = step(value.Alias, path, merges+1)
			continue
		}
		after, begins := strings.CutPrefix(path, key.Value)
		if begins && (after == "" || after[0] == '.' || after[0] == '[') && len(key.Value) >= longest {
			child, line, rest, longest = value, key.Line, strings.TrimPrefix(after, "."), len(key.Value)
		}
	}
	return child, line, rest
}

// PathAt returns the field of a JSON document that a decoder was reading after it had read offset bytes.
func PathAt(text []byte, offset int64) string {
	decoder := json.NewDecoder(bytes.NewReader(text))
	at := ""
	var visit func(path string) bool
	visit = func(path string) bool {
		token, err := decoder.Token()
		if err != nil || decoder.InputOffset() > offset {
			return false
		}
		at = path
		delim, nested := token.(json.Delim)
		for i := 0; nested && decoder.More(); i++ {
			inside := Element(path, i)
			if delim == '{' {
				key, err := decoder.Token()
				if err != nil {
					return false
				}
				inside = Member(path, fmt.Sprint(key))
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
	return at
}

// Member returns the path of a field of the mapping at parent.
func Member(parent, name string) string {
	if parent == "" || name == "" {
		return parent + name
	}
	return parent + "." + name
}

// Element returns the path of an item of the list at parent.
func Element(parent string, index int) string { return fmt.Sprintf("%s[%d]", parent, index) }
