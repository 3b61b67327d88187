package manifests

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

	"sigs.k8s.io/yaml"
)

// document is a part of a file that stands for itself.
type document struct {
	text  []byte // as it stands in the file
	line  int    // the line of the file that text starts in
	json  []byte // the same as JSON
	lines lineTable
}

// flaw is what is wrong in a line of a file whose name its finder does not know.
type flaw struct {
	line int
	err  error
}

// documents splits a file. Documents that hold nothing are left out.
func documents(name string, data []byte) ([]*document, []flaw) {
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	if strings.EqualFold(filepath.Ext(name), ".json") {
		return jsonDocuments(data)
	}
	return yamlDocuments(data)
}

// jsonDocuments splits JSON values that follow each other.
func jsonDocuments(data []byte) (docs []*document, flaws []flaw) {
	decoder := json.NewDecoder(bytes.NewReader(data))
	for {
		var value json.RawMessage
		err := decoder.Decode(&value)
		if err == io.EOF {
			return docs, flaws
		}
		if err != nil {
			at := int64(len(data))
			if syntax := (*json.SyntaxError)(nil); errors.As(err, &syntax) {
				at = syntax.Offset
			}
			return docs, append(flaws, flaw{lineAt(data, at), fmt.Errorf("not JSON: %w", err)})
		}
		start := decoder.InputOffset() - int64(len(value))
		docs = append(docs, &document{text: value, line: lineAt(data, start), json: value, lines: jsonLines})
	}
}

// lineAt is the line that the byte at an offset stands in.
func lineAt(data []byte, offset int64) int {
	return 1 + bytes.Count(data[:min(max(offset, 0), int64(len(data)))], []byte("\n"))
}

// yamlDocuments splits YAML at its document markers (YAML 1.2, 9.1.2) and makes JSON of each part.
func yamlDocuments(data []byte) (docs []*document, flaws []flaw) {
	for start, line := 0, 1; start < len(data); {
		end, lines, blank := nextDocument(data[start:])
		text := data[start : start+end]
		if !blank {
			converted, err := yaml.YAMLToJSONStrict(text)
			if err != nil {
				flaws = append(flaws, yamlFlaws(err, line, lines)...)
			} else {
				docs = append(docs, &document{text: text, line: line, json: converted, lines: yamlLines})
			}
		}
		start, line = start+end, line+lines
	}
	return docs, flaws
}

// nextDocument tells how many bytes and lines the first document of data has, and whether it says nothing:
// only comments, directives and markers.
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

// yamlMessage finds the places that the YAML library tells in its error's text.
var yamlMessage = regexp.MustCompile(`line (\d+): ([^\n]+)`)

// yamlFlaws reads the YAML library's error about a document that starts in a line of the file.
func yamlFlaws(err error, line, lines int) (flaws []flaw) {
	for _, match := range yamlMessage.FindAllStringSubmatch(err.Error(), -1) {
		at, _ := strconv.Atoi(match[1])
		if strings.HasPrefix(match[2], "did not find expected") {
			at++ // the library's parser, unlike its scanner, counts lines from 0
		}
		flaws = append(flaws, flaw{line + min(max(at, 1), lines) - 1, fmt.Errorf("not YAML: %s", match[2])})
	}
	if len(flaws) == 0 {
		flaws = append(flaws, flaw{line, fmt.Errorf("not YAML: %s", strings.TrimPrefix(err.Error(), "yaml: "))})
	}
	return flaws
}
