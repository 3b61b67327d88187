package main

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// rootfs is a tree of files by path, without a leading slash. Everything in it belongs to root.
type rootfs map[string]node

// node is a file, a directory or a symbolic link.
type node struct {
	mode int64 // permissions
	body []byte
	link string // the target of a symbolic link
	dir  bool
}

func (r rootfs) file(name string, mode int64, body []byte) { r[name] = node{mode: mode, body: body} }
func (r rootfs) symlink(name, target string)               { r[name] = node{mode: 0o777, link: target} }
func (r rootfs) folder(name string, mode int64)            { r[name] = node{mode: mode, dir: true} }

// merged are the directories that are links into usr. Some packages of this release still have files in them.
var merged = []string{"bin", "sbin", "lib", "lib64"}

// addPackage adds the files of a package that the image needs, and the package's entry for scanners.
func (r rootfs) addPackage(ctx context.Context, p pin, file string) error {
	files, err := exec.CommandContext(ctx, "dpkg-deb", "--fsys-tarfile", file).Output()
	if err != nil {
		return fmt.Errorf("dpkg-deb --fsys-tarfile %s: %w", file, err)
	}
	for archive := tar.NewReader(bytes.NewReader(files)); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		body, err := io.ReadAll(archive)
		if err != nil {
			return fmt.Errorf("%s: %s: %w", file, header.Name, err)
		}
		name := path.Clean(strings.TrimPrefix(header.Name, "./"))
		if first, _, _ := strings.Cut(name, "/"); slices.Contains(merged, first) {
			name = "usr/" + name
		}
		if !needed(name) || bytes.HasPrefix(body, []byte("#!")) { // there is no interpreter
			continue
		}
		switch header.Typeflag {
		case tar.TypeReg:
			r.file(name, header.Mode&0o755, body)
		case tar.TypeSymlink:
			r.symlink(name, header.Linkname)
		case tar.TypeDir: // archive adds the directories of all files
		default:
			return fmt.Errorf("%s: %s is neither a file, a folder nor a symbolic link", file, header.Name)
		}
	}
	control, err := exec.CommandContext(ctx, "dpkg-deb", "--field", file).Output()
	if err != nil {
		return fmt.Errorf("dpkg-deb --field %s: %w", file, err)
	}
	r.file("var/lib/dpkg/status.d/"+p.Name, 0o644, control)
	return nil
}

// needed reports whether the image contains a file of a package: programs, libraries, names of protocols, and licences.
func needed(name string) bool {
	for _, useless := range []string{"/gconv/", "/engines-3/", "/ossl-modules/", "usr/lib/systemd/", "usr/lib/modprobe.d/", "/iptables-apply", "/ip6tables-apply"} {
		if strings.Contains(name, useless) {
			return false
		}
	}
	for _, folder := range []string{"usr/bin/", "usr/sbin/", "usr/lib/", "usr/lib64/"} {
		if strings.HasPrefix(name, folder) {
			return true
		}
	}
	licence, _ := path.Match("usr/share/doc/*/copyright", name)
	return licence || name == "etc/protocols" || name == "etc/services"
}

// addBase adds what no package contains: links, accounts, and the release for scanners.
func (r rootfs) addBase(p *pins) {
	for _, name := range merged {
		if name != "lib64" || slices.ContainsFunc(slices.Collect(maps.Keys(r)), func(n string) bool { return strings.HasPrefix(n, "usr/lib64/") }) {
			r.symlink(name, "usr/"+name)
		}
	}
	for _, family := range []string{"iptables", "ip6tables"} {
		for _, program := range []string{"", "-save", "-restore"} {
			r.symlink("usr/sbin/"+family+program, family+"-nft"+program)
		}
	}
	r.file("etc/passwd", 0o644, []byte("root:x:0:0:root:/:/sbin/nologin\nnobody:x:65534:65534:nobody:/:/sbin/nologin\n"))
	r.file("etc/group", 0o644, []byte("root:x:0:\nnogroup:x:65534:\n"))
	r.file("etc/nsswitch.conf", 0o644, []byte("hosts: files dns\n"))
	r.file("etc/os-release", 0o644, fmt.Appendf(nil, "PRETTY_NAME=\"kube-proxy on packages of Debian GNU/Linux %s\"\nNAME=\"Debian GNU/Linux\"\nID=debian\nVERSION_ID=%q\nVERSION_CODENAME=%s\n",
		p.VersionID, p.VersionID, p.Release))
	for _, name := range []string{"etc", "run", "proc", "sys", "dev", "lib/modules", "var/lib/kube-proxy"} {
		if name == "lib/modules" {
			name = "usr/" + name // lib is a link
		}
		r.folder(name, 0o755)
	}
	r.folder("tmp", 0o1777)
}

// addFile adds a file of this machine, as a program.
func (r rootfs) addFile(name, from string) error {
	body, err := os.ReadFile(filepath.Clean(from))
	if err != nil {
		return err
	}
	r.file(name, 0o755, body)
	return nil
}

// archive returns the tree as a tar archive, sorted, with the directories of the files.
func (r rootfs) archive(when time.Time) ([]byte, error) {
	all := maps.Clone(r)
	for name := range r {
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			if _, known := all[dir]; !known {
				all[dir] = node{mode: 0o755, dir: true}
			}
		}
	}
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		n := all[name]
		header := &tar.Header{Name: name, Mode: n.mode, Size: int64(len(n.body)), ModTime: when, Typeflag: tar.TypeReg, Format: tar.FormatPAX}
		switch {
		case n.dir:
			header.Typeflag, header.Name = tar.TypeDir, name+"/"
		case n.link != "":
			header.Typeflag, header.Linkname = tar.TypeSymlink, n.link
		}
		if err := w.WriteHeader(header); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if _, err := w.Write(n.body); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	if err := w.Close(); err != nil { // writes the end of the archive
		return nil, err
	}
	return out.Bytes(), nil
}
