package manifests

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"k8s.io/klog/v2"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// TestFlippingFile lets a file be valid, invalid and full of other kinds by turns: it logs a bounded number of lines, which do not
// hide the error of another file.
func TestFlippingFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir, lines := t.TempDir(), []string{}
		ctx := klog.NewContext(t.Context(), funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{}))
		s, b := New(dir, "n1", Options{}), cluster.NewBuilder("n1")
		contents := func(name string, contents ...string) {
			for _, content := range contents {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
				for range 2 { // an error is logged if the second sync still finds it
					if _, err := s.sync(ctx, b, map[string]bool{everything: true}); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		for i := range 100 {
			contents("flip.yaml", "nonsense: [", "# valid\n", fmt.Sprintf("apiVersion: v1\nkind: Other%d\nmetadata: {name: x}\n", i))
		}
		if len(lines) > 40 {
			t.Errorf("%d lines; the last one is %s", len(lines), lines[len(lines)-1])
		}
		lines = nil
		contents("other.yaml", "nonsense: {")
		if len(lines) != 1 || !strings.Contains(lines[0], "other.yaml") {
			t.Errorf("the other file logs %q", lines)
		}
		time.Sleep(time.Minute)
		lines = nil
		contents("flip.yaml", "nonsense: [")
		if len(lines) != 1 || !strings.Contains(lines[0], `"notLogged"=90`) {
			t.Errorf("later the file logs %q", lines)
		}
	})
}
