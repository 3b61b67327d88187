package main

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	spdxjson "github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdxlib"
)

// mostBytes is the maximum compressed size of the image of one architecture.
const mostBytes = 60e6

// TestImage runs make image in a copy of the repository, and checks the content of each architecture's image. That another directory
// gives the same bytes is checked by make release-check, nightly.
func TestImage(t *testing.T) {
	for _, tool := range []string{"make", "apt-get", "dpkg-deb", "dpkg-query"} {
		need(t, tool)
	}
	repository, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	path := t.TempDir()
	copyTree(t, path, repository)
	makeImage(t, path)
	p, err := readPins(filepath.Join(path, "build/image/packages.json"))
	if err != nil {
		t.Fatal(err)
	}
	for arch, image := range images(t, filepath.Join(path, "bin/image/oci")) {
		t.Run(arch, func(t *testing.T) { checkImage(t, filepath.Join(path, "bin/image"), arch, image, p) })
	}
}

// need ends the test if a tool is missing: images are built on Debian.
func need(t *testing.T, tool string) {
	t.Helper()
	if _, err := exec.LookPath(tool); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skipf("%v: images are built on Debian", err)
	}
}

// copyTree copies a repository without its history, build results and linked worktrees. The cache of packages is shared.
func copyTree(t *testing.T, to, from string) {
	t.Helper()
	err := filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		switch {
		case slices.Contains([]string{".git", ".cache", "bin"}, rel) && entry.IsDir():
			return fs.SkipDir
		case entry.IsDir():
			return os.MkdirAll(filepath.Join(to, rel), 0o755)
		case entry.Type().IsRegular() && rel != ".git":
			copyFile(t, filepath.Join(to, rel), path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	cache := filepath.Join(from, ".cache")
	if err := os.MkdirAll(cache, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(cache, filepath.Join(to, ".cache")); err != nil {
		t.Fatal(err)
	}
}

func copyFile(t *testing.T, to, from string) {
	t.Helper()
	info, err := os.Stat(from)
	if err != nil {
		t.Fatal(err)
	}
	body, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, body, info.Mode().Perm()); err != nil {
		t.Fatal(err)
	}
}

// makeImage runs make image, and updates the pins first if the mirror no longer has the pinned packages.
func makeImage(t *testing.T, dir string) {
	t.Helper()
	run := func(target string) ([]byte, error) {
		command := exec.Command("make", target, "VERSION=v1.2.3+abc", "COMMIT=abc", "CREATED=1700000000", "DATE=2023-11-14T22:13:20Z")
		command.Dir = dir
		command.Env = slices.DeleteFunc(os.Environ(), func(variable string) bool { // those of the make that runs this test
			name, _, _ := strings.Cut(variable, "=")
			return slices.Contains([]string{"MAKEFLAGS", "MFLAGS", "MAKELEVEL"}, name)
		})
		return command.CombinedOutput()
	}
	out, err := run("image")
	if err == nil {
		return
	}
	if !strings.Contains(string(out), "make image-packages") {
		t.Fatalf("make image: %v: %s", err, out)
	}
	for _, target := range []string{"image-packages", "image"} {
		if out, err := run(target); err != nil {
			t.Fatalf("make %s: %v: %s", target, err, out)
		}
	}
}

// images returns the images of a layout by architecture.
func images(t *testing.T, dir string) map[string]v1.Image {
	t.Helper()
	outer, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := outer.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	index, err := outer.ImageIndex(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	if manifest, err = index.IndexManifest(); err != nil {
		t.Fatal(err)
	}
	found := map[string]v1.Image{}
	for _, m := range manifest.Manifests {
		if found[m.Platform.Architecture], err = index.Image(m.Digest); err != nil {
			t.Fatal(err)
		}
	}
	if len(found) != 2 || found["amd64"] == nil || found["arm64"] == nil {
		t.Fatalf("the image has the platforms %v, want linux/amd64 and linux/arm64", manifest.Manifests)
	}
	return found
}

// checkImage checks one image: its size, labels and bill of materials, its list of packages, and that its programs start.
func checkImage(t *testing.T, dir, arch string, image v1.Image, p *pins) {
	size, err := compressedSize(image)
	if err != nil {
		t.Fatal(err)
	}
	if t.Logf("%.1f MB compressed", float64(size)/1e6); size > mostBytes {
		t.Errorf("the image has %d bytes compressed, want at most %.0f", size, mostBytes)
	}
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"title": "kube-proxy", "version": "v1.2.3+abc", "revision": "abc", "created": "2023-11-14T22:13:20Z",
		"licenses": "Apache-2.0", "source": "https://github.com/seed-11a05479/kube-proxy"}
	for name, value := range want {
		if got := config.Config.Labels["org.opencontainers.image."+name]; got != value {
			t.Errorf("label %s is %q, want %q", name, got, value)
		}
	}
	if !slices.Equal(config.Config.Entrypoint, []string{"/usr/local/bin/kube-proxy"}) {
		t.Errorf("the entry point is %q", config.Config.Entrypoint)
	}
	data, err := os.ReadFile(filepath.Join(dir, "kube-proxy_linux_"+arch+".spdx.json"))
	if err != nil {
		t.Fatal(err)
	}
	if doc, err := spdxjson.Read(bytes.NewReader(data)); err != nil {
		t.Error(err)
	} else if err := spdxlib.ValidateDocument(doc); err != nil {
		t.Error(err)
	}
	root := filepath.Join(t.TempDir(), "root")
	files := mutate.Extract(image)
	defer files.Close()
	if err := os.Mkdir(root, 0o755); err != nil {
		t.Fatal(err)
	}
	unpack := exec.Command("tar", "-x", "-C", root)
	unpack.Stdin = files
	if out, err := unpack.CombinedOutput(); err != nil {
		t.Fatalf("tar: %v: %s", err, out)
	}
	checkPackages(t, root, arch, p)
	checkPrograms(t, root, arch)
}

// checkPackages checks that dpkg can read the packages' entries, which scanners read one by one.
func checkPackages(t *testing.T, root, arch string, p *pins) {
	t.Helper()
	admin := t.TempDir()
	var status bytes.Buffer
	for _, pin := range p.Packages[arch] {
		entry, err := os.ReadFile(filepath.Join(root, "var/lib/dpkg/status.d", pin.Name))
		if err != nil {
			t.Fatal(err)
		}
		status.WriteString("Status: install ok installed\n")
		status.Write(append(bytes.TrimRight(entry, "\n"), "\n\n"...))
	}
	if err := os.WriteFile(filepath.Join(admin, "status"), status.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("dpkg-query", "--admindir", admin, "--show", "-f", "${Package}=${Version}\n").Output()
	if err != nil {
		t.Fatalf("dpkg-query: %v", err)
	}
	for _, pin := range p.Packages[arch] {
		if !strings.Contains("\n"+string(out), "\n"+pin.String()+"\n") {
			t.Errorf("dpkg does not know %s in %s", pin, out)
		}
	}
}

// checkPrograms checks that there is no shell, and starts the image's programs, those of another architecture with QEMU.
func checkPrograms(t *testing.T, root, arch string) {
	t.Helper()
	for _, shell := range []string{"sh", "bash", "dash", "busybox", "perl", "python3"} {
		for _, folder := range []string{"bin", "sbin", "usr/local/bin"} {
			if _, err := os.Lstat(filepath.Join(root, folder, shell)); err == nil {
				t.Errorf("the image has /%s/%s", folder, shell)
			}
		}
	}
	emulated := arch != runtime.GOARCH
	start := func(stdin string, args ...string) string {
		t.Helper()
		command := exec.Command("chroot", append([]string{root}, args...)...)
		if emulated {
			emulator := map[string]string{"arm64": "qemu-aarch64-static", "amd64": "qemu-x86_64-static"}[arch]
			need(t, emulator)
			command = exec.Command(emulator, append([]string{"-L", root, filepath.Join(root, args[0])}, args[1:]...)...)
		}
		command.Stdin = strings.NewReader(stdin)
		out, err := command.CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v: %s", args, err, out)
		}
		return string(out)
	}
	for _, program := range []struct {
		want string
		args []string
		// native programs use a netlink family, or start programs, which QEMU's user mode does not support.
		native bool
	}{
		{"v1.2.3+abc", []string{"/usr/local/bin/kube-proxy", "--version"}, false},
		{"v1.2.3+abc", []string{"/go-runner", "--log-file=/dev/null", "--also-stdout", "/usr/local/bin/kube-proxy", "--version"}, true},
		{"nftables v", []string{"/usr/sbin/nft", "--version"}, true},
		{"(nf_tables)", []string{"/usr/sbin/iptables", "--version"}, true},
		{"(legacy)", []string{"/usr/sbin/xtables-legacy-multi", "iptables", "--version"}, false},
		{"kmod version", []string{"/usr/bin/kmod", "--version"}, false},
	} {
		if program.native && emulated {
			continue
		}
		if out := start("", program.args...); !strings.Contains(out, program.want) {
			t.Errorf("%s printed %q, want %s", program.args, out, program.want)
		}
	}
	loader := map[string]string{"amd64": "/lib64/ld-linux-x86-64.so.2", "arm64": "/lib/ld-linux-aarch64.so.1"}[arch]
	for _, program := range []string{"nft", "xtables-nft-multi", "xtables-legacy-multi"} {
		path := "/usr/sbin/" + program
		if emulated {
			path = filepath.Join(root, path)
		}
		if out := start("", loader, "--list", path); !strings.Contains(out, "libc.so.6 => ") || strings.Contains(out, "not found") {
			t.Errorf("libraries of %s: %s", program, out)
		}
	}
	const old = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nmode: nftables\nclusterCIDR: 10.244.0.0/16\n"
	converted := start(old, "/usr/local/bin/kube-proxy", "config", "convert", "-")
	for _, want := range []string{"kubeproxy.config.k8s.io/v1alpha2", "mode: nftables", "10.244.0.0/16"} {
		if !strings.Contains(converted, want) {
			t.Errorf("the converted configuration has no %s: %s", want, converted)
		}
	}
}
