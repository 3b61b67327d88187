package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
)

var made = about{Version: "v1.2.3+abc", Revision: "abc", Source: "https://example.org", Created: time.Unix(1700000000, 0).UTC()}

// writePackage creates a Debian package of files whose names describe their content: NAME -> TARGET is a link.
func writePackage(t *testing.T, files map[string]string) string {
	t.Helper()
	need(t, "dpkg-deb")
	root := t.TempDir()
	files["DEBIAN/control"] = "Package: tool\nVersion: 1:2.0-1\nArchitecture: all\nMaintainer: nobody <nobody@example.org>\nDescription: a tool\n"
	for name, body := range files {
		name, target, link := strings.Cut(name, " -> ")
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		if link {
			err = os.Symlink(target, path)
		} else {
			err = os.WriteFile(path, []byte(body), 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(t.TempDir(), "tool.deb")
	if out, err := exec.Command("dpkg-deb", "--build", root, file).CombinedOutput(); err != nil {
		t.Fatalf("dpkg-deb --build: %v: %s", err, out)
	}
	return file
}

// TestRootfs extracts a package: programs and libraries are kept below /usr, scripts and documentation are not.
func TestRootfs(t *testing.T) {
	file := writePackage(t, map[string]string{
		"sbin/tool":                    "\x7fELF program",
		"sbin/tool-restore -> tool":    "",
		"lib/x/libtool.so":             "\x7fELF library",
		"usr/bin/tool-script":          "#!/bin/sh\n",
		"usr/lib/x/gconv/UTF-32.so":    "\x7fELF converter",
		"usr/share/doc/tool/copyright": "licence",
		"usr/share/doc/tool/changelog": "changes",
		"usr/share/man/man8/tool.8":    "manual",
		"etc/default/tool":             "settings",
	})
	p, err := pinOf(t.Context(), file)
	if err != nil {
		t.Fatal(err)
	}
	if p.Name != "tool" || p.Version != "1:2.0-1" || len(p.SHA256) != 64 {
		t.Errorf("pinOf = %+v", p)
	}
	tree := rootfs{}
	if err := tree.addPackage(t.Context(), p, file); err != nil {
		t.Fatal(err)
	}
	tree.addBase(&pins{Release: "bookworm", VersionID: "12"})
	for _, name := range []string{"usr/sbin/tool", "usr/sbin/tool-restore", "usr/lib/x/libtool.so", "usr/share/doc/tool/copyright", "var/lib/dpkg/status.d/tool", "etc/os-release", "sbin"} {
		if _, ok := tree[name]; !ok {
			t.Errorf("%s is missing", name)
		}
	}
	for name := range tree {
		for _, unwanted := range []string{"script", "gconv", "changelog", "man8", "default"} {
			if strings.Contains(name, unwanted) {
				t.Errorf("%s is in the image", name)
			}
		}
	}
}

// TestArchive checks what tar readers rely on: every directory precedes its files, and everything belongs to root.
func TestArchive(t *testing.T) {
	tree := rootfs{}
	tree.file("a/b/c", 0o755, []byte("body"))
	tree.symlink("a/d", "b/c")
	tree.folder("tmp", 0o1777)
	data, err := tree.archive(made.Created)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.HasSuffix(data, make([]byte, 1024)) {
		t.Error("the archive has no end: tar fails on it, though Go does not")
	}
	var names []string
	for r := tar.NewReader(bytes.NewReader(data)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, h.Name)
		if h.Uid != 0 || h.Gid != 0 || !h.ModTime.Equal(made.Created) {
			t.Errorf("%s belongs to %d:%d and is of %s", h.Name, h.Uid, h.Gid, h.ModTime)
		}
	}
	if want := []string{"a/", "a/b/", "a/b/c", "a/d", "tmp/"}; !slices.Equal(names, want) {
		t.Errorf("archive holds %q, want %q", names, want)
	}
}

// TestReproducible builds the same image twice, and others with one difference each.
func TestReproducible(t *testing.T) {
	digestOf := func(a about, body string) string {
		t.Helper()
		packages, binaries := rootfs{}, rootfs{}
		for _, name := range []string{"usr/bin/a", "usr/bin/b", "usr/bin/c"} {
			packages.file(name, 0o755, []byte(name))
		}
		binaries.file("usr/local/bin/kube-proxy", 0o755, []byte(body))
		image, err := newImage("amd64", a, packages, binaries)
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		index := newIndex(a, map[string]v1.Image{"amd64": image}, []string{"amd64"})
		if err := writeLayout(filepath.Join(dir, "oci"), mustTag(t, "localhost/kube-proxy:v1"), index); err != nil {
			t.Fatal(err)
		}
		if err := writeArchive(filepath.Join(dir, "image.tar"), filepath.Join(dir, "oci"), a.Created); err != nil {
			t.Fatal(err)
		}
		sum, err := digest(filepath.Join(dir, "image.tar"))
		if err != nil {
			t.Fatal(err)
		}
		return sum
	}
	first := digestOf(made, "binary")
	if again := digestOf(made, "binary"); again != first {
		t.Error("the same image was built twice, and differs")
	}
	other := made
	other.Version = "v1.2.4"
	if digestOf(made, "other") == first || digestOf(other, "binary") == first {
		t.Error("another image has the same digest")
	}
}

// TestPins checks that packages.json names every wanted package for every architecture, and no shell.
func TestPins(t *testing.T) {
	p, err := readPins("packages.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, arch := range []string{"amd64", "arm64"} {
		var names []string
		for _, pin := range p.Packages[arch] {
			names = append(names, pin.Name)
			if pin.Version == "" || len(pin.SHA256) != 64 {
				t.Errorf("%s: %+v is not pinned", arch, pin)
			}
		}
		for _, wanted := range p.Wanted {
			if !slices.Contains(names, wanted) {
				t.Errorf("%s: %s is not pinned", arch, wanted)
			}
		}
		for _, shell := range []string{"bash", "dash", "busybox"} {
			if slices.Contains(names, shell) {
				t.Errorf("%s: the image would have the shell %s", arch, shell)
			}
		}
	}
}

func mustTag(t *testing.T, ref string) name.Tag {
	t.Helper()
	tag, err := name.NewTag(ref)
	if err != nil {
		t.Fatal(err)
	}
	return tag
}
