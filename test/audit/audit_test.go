package audit

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/seed-11a05479/kube-proxy/pkg/findings"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/source/manifests"
	"github.com/seed-11a05479/kube-proxy/test/kubeproxy"
)

func TestMain(m *testing.M) { kubeproxy.Main(m) }

var update = flag.Bool("update", false, "write the findings into the files")

// shape is a file of testdata.
type shape struct {
	name    string
	path    string
	archive *txtar.Archive
	objects []runtime.Object
}

func (s *shape) part(name string) string {
	for _, file := range s.archive.Files {
		if file.Name == name {
			return string(file.Data)
		}
	}
	return ""
}

func shapes(t *testing.T) (all []*shape) {
	t.Helper()
	paths, err := filepath.Glob("testdata/*.txtar")
	must(t, err)
	for _, path := range paths {
		archive, err := txtar.ParseFile(path)
		must(t, err)
		s := &shape{name: strings.TrimSuffix(filepath.Base(path), ".txtar"), path: path, archive: archive}
		read, err := manifests.Read("-", strings.NewReader(s.part("objects.yaml")))
		must(t, err)
		must(t, read.Err)
		s.objects = read.Objects
		all = append(all, s)
	}
	return all
}

// audit runs "kube-proxy audit" over the shape.
func (s *shape) audit(t *testing.T, args ...string) *findings.Report {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"config.yaml", "objects.yaml"} {
		kubeproxy.MustWrite(filepath.Join(dir, name), s.part(name))
	}
	command := exec.Command(kubeproxy.Path(t), append([]string{"audit", "--manifests", filepath.Join(dir, "objects.yaml"), "--config", filepath.Join(dir, "config.yaml"), "-o", "json"}, args...)...)
	var out, errs bytes.Buffer
	command.Stdout, command.Stderr = &out, &errs
	err := command.Run()
	var report findings.Report
	if command.ProcessState.ExitCode() > 1 || json.Unmarshal(out.Bytes(), &report) != nil {
		t.Fatalf("%v: %v\n%s%s", command.Args, err, &out, &errs)
	}
	for i := range report.Findings {
		report.Findings[i].Name = strings.TrimPrefix(report.Findings[i].Name, dir+"/")
	}
	return &report
}

// TestGoldenFindings compares the findings about a change to nftables mode with the files.
func TestGoldenFindings(t *testing.T) {
	for _, s := range shapes(t) {
		report := s.audit(t, "--to-mode", "nftables")
		var text strings.Builder
		for _, f := range report.Findings {
			fmt.Fprintf(&text, "%s %s %s: %s\n", f.Severity, f.Code, f.Object(), f.Message)
		}
		for _, difference := range report.ModeDifferences {
			fmt.Fprintf(&text, "all: %s\n", difference)
		}
		if *update {
			s.archive.Files = append(s.archive.Files[:2:2], txtar.File{Name: "audit", Data: []byte(text.String())})
			kubeproxy.MustWrite(s.path, string(txtar.Format(s.archive)))
			continue
		}
		if diff := cmp.Diff(s.part("audit"), text.String()); diff != "" {
			t.Errorf("%s (-file +now):\n%s", s.name, diff)
		}
	}
	if info, err := os.Stat("testdata"); err != nil || !info.IsDir() {
		t.Error("no shapes")
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
