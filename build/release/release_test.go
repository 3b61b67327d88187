package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// newRepository makes a small repository of the same shape as this one, with a tag v1.0.0 and two commits after it.
func newRepository(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	git := func(args ...string) {
		t.Helper()
		command := exec.Command("git", append([]string{"-C", root, "-c", "user.name=a", "-c", "user.email=a@example.org"}, args...)...)
		command.Env = append(os.Environ(), "GIT_AUTHOR_DATE=2023-11-14T22:13:20Z", "GIT_COMMITTER_DATE=2023-11-14T22:13:20Z")
		if out, err := command.CombinedOutput(); err != nil {
			t.Fatalf("git %s: %v: %s", args, err, out)
		}
	}
	for name, text := range map[string]string{
		"go.mod":                 "module example.org/a\n\ngo 1.26.0\n",
		"cmd/kube-proxy/main.go": "package main\n\nvar version string\n\nfunc main() { println(version) }\n",
		"LICENSE":                "licence\n",
		"CHANGELOG.md":           "# Changelog\n\n## v1.1.0 (unreleased)\n\n* New: a [thing](docs/a.md#thing).\n\n## v1.0.0\n\n* Old.\n",
		"bin/image/digest":       "sha256:0123\n", "bin/image/kube-proxy.oci.tar": "archive",
		"bin/image/kube-proxy_linux_amd64.spdx.json":     "{}",
		"build/charts/kube-proxy/Chart.yaml":             "apiVersion: v2\nname: kube-proxy\nversion: 0.0.0\nappVersion: latest\n",
		"build/charts/kube-proxy/templates/_helpers.tpl": "{{/* nothing */}}\n",
	} {
		path := filepath.Join(root, filepath.FromSlash(name))
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	for _, arch := range []string{"amd64", "arm64"} {
		build := exec.Command("go", "build", "-trimpath", "-o", "bin/image/linux_"+arch+"/kube-proxy", "./cmd/kube-proxy")
		build.Dir, build.Env = root, append(os.Environ(), "CGO_ENABLED=0", "GOARCH="+arch)
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("go build: %v: %s", err, out)
		}
	}
	git("init", "-q")
	git("commit", "-q", "--allow-empty", "-m", "first: before the tag")
	git("tag", "v1.0.0")
	git("commit", "-q", "--allow-empty", "-m", "second: after the tag")
	git("commit", "-q", "--allow-empty", "-m", "third: the newest")
	git("tag", "v1.1.0")
	return root
}

// newRelease prepares the release of a repository.
func newRelease(t *testing.T, root, version string) *release {
	t.Helper()
	r := &release{root: root, out: filepath.Join(root, "bin", "release"), image: filepath.Join(root, "bin", "image"), version: version,
		revision: "abc", source: "https://example.org", ldflags: "-X main.version=" + version, created: time.Unix(1700000000, 0)}
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		t.Fatal(err)
	}
	return r
}

// TestRelease writes a release on two paths, and checks that both are the same, and complete.
func TestRelease(t *testing.T) {
	first, second := newRelease(t, newRepository(t), "v1.1.0"), newRelease(t, newRepository(t), "v1.1.0")
	if err := errors.Join(first.run(t.Context()), second.run(t.Context())); err != nil {
		t.Fatal(err)
	}
	a := first.out
	sums := read(t, a, "SHA256SUMS")
	if again := read(t, second.out, "SHA256SUMS"); again != sums {
		t.Errorf("two paths give different files:\n%s%s", sums, again)
	}
	check := exec.Command("sha256sum", "--check", "--strict", "SHA256SUMS")
	check.Dir = a
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("sha256sum: %v: %s", err, out)
	}
	var names []string
	for line := range strings.Lines(sums) {
		names = append(names, strings.TrimSpace(line[64:]))
	}
	want := []string{
		"RELEASE_NOTES.md", "kube-proxy-1.1.0.tgz", "kube-proxy-image.oci.tar", "kube-proxy-image_linux_amd64.spdx.json",
		"kube-proxy_darwin_amd64", "kube-proxy_darwin_amd64.spdx.json", "kube-proxy_darwin_arm64", "kube-proxy_darwin_arm64.spdx.json",
		"kube-proxy_linux_amd64", "kube-proxy_linux_amd64.spdx.json", "kube-proxy_linux_arm64", "kube-proxy_linux_arm64.spdx.json",
		"kube-proxy_windows_amd64.exe", "kube-proxy_windows_amd64.spdx.json",
		"krew.yaml", "kubectl-kube_proxy_darwin_amd64.tar.gz", "kubectl-kube_proxy_darwin_arm64.tar.gz",
		"kubectl-kube_proxy_linux_amd64.tar.gz", "kubectl-kube_proxy_linux_arm64.tar.gz", "kubectl-kube_proxy_windows_amd64.tar.gz",
	}
	slices.Sort(want)
	if !slices.Equal(names, want) {
		t.Errorf("the release holds %q, want %q", names, want)
	}
	for name, word := range map[string]string{"kube-proxy_darwin_arm64": "v1.1.0", "kube-proxy_windows_amd64.exe": "v1.1.0", "kube-proxy_linux_arm64.spdx.json": "pkg:golang/stdlib@"} {
		if !strings.Contains(read(t, a, name), word) {
			t.Errorf("%s does not contain %s", name, word)
		}
	}
}

// TestKrew reads the manifest of the plugin, and compares its digests and names with the archives.
func TestKrew(t *testing.T) {
	r := newRelease(t, newRepository(t), "v1.1.0")
	if err := r.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	manifest, sums := read(t, r.out, "krew.yaml"), read(t, r.out, "SHA256SUMS")
	for _, p := range platforms() {
		name := "kubectl-kube_proxy_" + p.os + "_" + p.arch + ".tar.gz"
		before, _, _ := strings.Cut(sums, name)
		sum := strings.TrimRight(before[strings.LastIndex(before, "\n")+1:], " *")
		entry := "os: " + p.os + ", arch: " + p.arch + "}}\n    uri: https://example.org/releases/download/v1.1.0/" + name + "\n    sha256: " + sum + "\n    bin: kubectl-kube_proxy"
		if !strings.Contains(manifest, entry) {
			t.Errorf("without\n%s:\n%s", entry, manifest)
		}
	}
	packed, err := exec.Command("tar", "-tvf", filepath.Join(r.out, "kubectl-kube_proxy_linux_amd64.tar.gz")).CombinedOutput()
	if text := string(packed); err != nil || !strings.Contains(text, "LICENSE") || !strings.Contains(text, "-rwxr-xr-x") || !strings.Contains(text, "kubectl-kube_proxy") {
		t.Errorf("the archive has\n%s, %v", packed, err)
	}
}

// TestNotes checks the notes of a tagged commit, and of one after a tag.
func TestNotes(t *testing.T) {
	root := newRepository(t)
	r := newRelease(t, root, "v1.1.0")
	if err := r.writeNotes(t.Context()); err != nil {
		t.Fatal(err)
	}
	notes := read(t, r.out, "RELEASE_NOTES.md")
	for _, want := range []string{"# kube-proxy v1.1.0\n\n* New: a [thing](https://example.org/blob/abc/docs/a.md#thing).\n", "`sha256:0123`", "## Commits since v1.0.0\n\n* third: the newest (", "* second: after the tag ("} {
		if !strings.Contains(notes, want) {
			t.Errorf("the notes do not contain %q:\n%s", want, notes)
		}
	}
	for _, unwanted := range []string{"before the tag", "Old."} {
		if strings.Contains(notes, unwanted) {
			t.Errorf("the notes contain %q:\n%s", unwanted, notes)
		}
	}
	if out, err := exec.Command("git", "-C", root, "tag", "-d", "v1.0.0").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := r.writeNotes(t.Context()); err != nil {
		t.Fatal(err)
	}
	if notes := read(t, r.out, "RELEASE_NOTES.md"); !strings.Contains(notes, "* New: a [thing]") || strings.Contains(notes, "the newest") {
		t.Errorf("the notes of the first release:\n%s\nwant the changelog and no commits", notes)
	}
	if got := section(string(mustRead(t, filepath.Join(root, "CHANGELOG.md"))), "v1.0.0"); got != "* Old." {
		t.Errorf("the section of v1.0.0 is %q", got)
	}
}

// TestChart checks the archive of the chart: the names that Helm expects, and the versions.
func TestChart(t *testing.T) {
	r := newRelease(t, newRepository(t), "v1.1.0+dirty")
	if err := r.writeChart(t.Context()); err != nil {
		t.Fatal(err)
	}
	unzipped, err := gzip.NewReader(bytes.NewReader(mustRead(t, filepath.Join(r.out, "kube-proxy-1.1.0+dirty.tgz"))))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for archive := tar.NewReader(unzipped); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		files[header.Name] = string(body)
	}
	if want := "apiVersion: v2\nname: kube-proxy\nversion: 1.1.0+dirty\nappVersion: \"v1.1.0_dirty\"\n"; files["kube-proxy/Chart.yaml"] != want || len(files) != 2 {
		t.Errorf("the chart holds %q", files)
	}
}

// TestRefused checks that an invalid version and a missing image are errors.
func TestRefused(t *testing.T) {
	for _, version := range []string{"", "1.2.3", "v1.2", "v01.2.3", "latest"} {
		if err := newRelease(t, t.TempDir(), version).run(t.Context()); err == nil || !strings.Contains(err.Error(), "tag the commit") {
			t.Errorf("version %q: %v", version, err)
		}
	}
	root := newRepository(t)
	if err := os.Remove(filepath.Join(root, "bin/image/kube-proxy_linux_amd64.spdx.json")); err != nil {
		t.Fatal(err)
	}
	if err := newRelease(t, root, "v1.1.0").run(t.Context()); err == nil || !strings.Contains(err.Error(), "run make image") {
		t.Errorf("without an image: %v", err)
	}
}

func read(t *testing.T, dir, name string) string {
	t.Helper()
	return string(mustRead(t, filepath.Join(dir, name)))
}

func mustRead(t *testing.T, path string) []byte {
	t.Helper()
	body, err := os.ReadFile(filepath.Clean(path))
	if err != nil {
		t.Fatal(err)
	}
	return body
}
