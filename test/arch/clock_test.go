package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// wallClock are the files that use the time of day, with what for. A time of time.Now also holds the monotonic clock, which
// does not jump when somebody sets the time of day; all decisions compare such times. These calls lose it.
var wallClock = map[string]string{
	"pkg/kernel/netlock/netlock.go":               "reports to users since when a process holds the lock",
	"pkg/proxy/cluster/convert.go":                "reads when an EndpointSlice changed, for the metric of the programming latency",
	"pkg/proxy/metrics/metrics.go":                "timestamps of metrics",
	"pkg/proxy/serve/zpages.go":                   "shows when the process started",
	"pkg/proxy/page/text.go":                      "shows times",
	"pkg/userfile/version_linux.go":               "compares a file's modification time with an earlier one of the same file",
	"pkg/userfile/version_other.go":               "the same on other systems",
	"pkg/proxy/view/history.go":                   "sorts events into minutes for the status page",
	"pkg/proxy/source/apiserver/events/events.go": "the time of an Event",
}

// losesMonotonic are the methods of time.Time, and functions of package time and metav1, that have no monotonic clock.
var losesMonotonic = []string{"UTC", "Local", "Unix", "UnixNano", "UnixMilli", "UnixMicro", "Parse", "ParseInLocation", "Date", "NowMicro"}

// TestWallClock finds new uses of the time of day, so that a clock that jumps has no effect on what is programmed.
func TestWallClock(t *testing.T) {
	found := map[string]bool{}
	for _, dir := range []string{"pkg", "cmd"} {
		root := filepath.Join("..", "..", dir)
		err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			name, _ := filepath.Rel(filepath.Join("..", ".."), path)
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok {
					return true
				}
				if of, ok := call.Fun.(*ast.SelectorExpr); ok && slices.Contains(losesMonotonic, of.Sel.Name) && ofTime(of) {
					found[filepath.ToSlash(name)] = true
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(found)) {
		if wallClock[name] == "" {
			t.Errorf("%s uses the time of day, which may jump: compare times of time.Now, or add the file to wallClock with the reason", name)
		}
	}
	for name := range wallClock {
		if !found[name] {
			t.Errorf("%s does not use the time of day any more: remove it from wallClock", name)
		}
	}
}

// ofTime reports whether a selector may be about a time: a function must be of the packages time or metav1.
func ofTime(of *ast.SelectorExpr) bool {
	if name, ok := of.X.(*ast.Ident); ok && (name.Name == "time" || name.Name == "metav1") {
		return true
	}
	return !slices.Contains([]string{"Parse", "ParseInLocation", "Date", "NowMicro"}, of.Sel.Name)
}
