package arch

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// TestProgramHasFewKinds checks that the program does not contain every kind of every API group by a package that another one
// imports.
func TestProgramHasFewKinds(t *testing.T) {
	list := exec.Command("go", "list", "-deps", "./cmd/kube-proxy")
	list.Dir = "../.."
	packages, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	for p := range strings.Lines(string(packages)) {
		p = strings.TrimSpace(p)
		if slices.ContainsFunc(heavy, func(h string) bool { return p == h || strings.HasPrefix(p, h+"/") }) {
			t.Errorf("cmd/kube-proxy contains %s: go list -json -deps ./cmd/kube-proxy shows what imports it", p)
		}
	}
}
