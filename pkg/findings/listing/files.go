package listing

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/seed-11a05479/kube-proxy/pkg/findings"
	"github.com/seed-11a05479/kube-proxy/pkg/userfile"
)

// maxSize is the maximum size of a file in bytes: that of a cluster with a million endpoints, as YAML.
const maxSize = 1 << 30

// Files reads the manifests in a directory or one file; path "-" is stdin. passedOver describes objects of other kinds, one
// line for each file. bad joins an error for each object and document that could not be read; the others have been analyzed.
// err is set if nothing could be read.
func Files(path string, stdin io.Reader, analyzer *findings.Analyzer) (passedOver []string, bad, err error) {
	names := []string{path}
	if path != "-" {
		if names, err = filesIn(path); err != nil {
			return nil, nil, err
		}
	}
	for _, name := range names {
		var data []byte
		if name == "-" {
			name = "<stdin>"
			data, err = userfile.ReadAll(stdin, name, maxSize)
		} else {
			data, err = userfile.Read(name, maxSize)
		}
		if err != nil {
			bad = errors.Join(bad, err)
			continue
		}
		kinds, wrong := analyzer.Documents(name, data)
		bad = errors.Join(bad, wrong)
		if line := describe(kinds); line != "" {
			passedOver = append(passedOver, name+": passed over "+line)
		}
	}
	return passedOver, bad, nil
}

// describe gives "2 Deployment (apps/v1), 1 Pod (v1)"; "" for nothing.
func describe(kinds map[string]int) string {
	var parts []string
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		parts = append(parts, fmt.Sprintf("%d %s", kinds[kind], kind))
	}
	return strings.Join(parts, ", ")
}

// filesIn lists a file, or those of a directory that the proxy would read, too.
func filesIn(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil || !info.IsDir() {
		return []string{path}, err
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	var files []string
	for _, entry := range entries {
		ending := strings.ToLower(filepath.Ext(entry.Name()))
		if !entry.IsDir() && !strings.HasPrefix(entry.Name(), ".") && slices.Contains([]string{".yaml", ".yml", ".json"}, ending) {
			files = append(files, filepath.Join(path, entry.Name()))
		}
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s holds no .yaml, .yml or .json file", path)
	}
	return files, nil
}
