//go:build linux

package image

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// Unpack builds the image of this machine's architecture from the binaries of make build, unpacks it below a new temporary
// folder, and returns the folder of its files; the caller removes the folder's parent. repository is the path of the
// repository. The versions that packages.json pins are used if the mirror still has them.
func Unpack(repository string) (root string, err error) {
	dir, err := os.MkdirTemp("", "kube-proxy-image-")
	if err != nil {
		return "", err
	}
	from := filepath.Join(dir, "binaries", "linux_"+runtime.GOARCH)
	if err := os.MkdirAll(from, 0o755); err != nil {
		return "", err
	}
	for _, name := range []string{"kube-proxy", "go-runner"} {
		built, err := filepath.Abs(filepath.Join(repository, "bin", name))
		if err != nil {
			return "", err
		}
		if err := os.Symlink(built, filepath.Join(from, name)); err != nil {
			return "", err
		}
	}
	cache, err := filepath.Abs(filepath.Join(repository, ".cache", "deb"))
	if err != nil {
		return "", err
	}
	build := func(args ...string) error {
		args = append([]string{"run", "-C", filepath.Join(repository, "build", "image"), ".", "-cache", cache, "-arch", runtime.GOARCH}, args...)
		if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
			return fmt.Errorf("go %s: %w: %s", strings.Join(args, " "), err, out)
		}
		return nil
	}
	image := []string{"-binaries", filepath.Dir(from), "-out", filepath.Join(dir, "image"), "-ref", "localhost/kube-proxy:test", "-version", "v0.0.0"}
	if err := build(image...); err != nil {
		// Debian may have replaced a pinned version since. A test may use the current ones.
		pins := filepath.Join(dir, "packages.json")
		pinned, err2 := os.ReadFile(filepath.Join(repository, "build", "image", "packages.json"))
		err2 = errors.Join(err2, os.WriteFile(pins, pinned, 0o600), build("-update", "-packages", pins))
		if err2 != nil {
			return "", errors.Join(err, err2)
		}
		if err := build(append(image, "-packages", pins)...); err != nil {
			return "", err
		}
	}
	root = filepath.Join(dir, "rootfs")
	return root, unpack(filepath.Join(dir, "image", "oci"), root)
}

// unpack writes the files of a layout's only image below root.
func unpack(dir, root string) error {
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return err
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return err
	}
	architectures, err := index.ImageIndex(manifest.Manifests[0].Digest)
	if err != nil {
		return err
	}
	if manifest, err = architectures.IndexManifest(); err != nil {
		return err
	}
	image, err := architectures.Image(manifest.Manifests[0].Digest)
	if err != nil {
		return err
	}
	files := mutate.Extract(image)
	defer files.Close()
	for archive := tar.NewReader(files); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		path := filepath.Join(root, header.Name)
		mode := fs.FileMode(header.Mode).Perm()
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { // the topmost layer comes first
			return err
		}
		switch header.Typeflag {
		case tar.TypeDir:
			err = os.MkdirAll(path, mode)
		case tar.TypeSymlink:
			err = os.Symlink(header.Linkname, path)
		default:
			var body bytes.Buffer
			if _, err = io.Copy(&body, archive); err == nil { //nolint:gosec // our own image
				err = os.WriteFile(path, body.Bytes(), mode)
			}
		}
		if err != nil {
			return err
		}
	}
}

// Render returns the YAML of the objects that a kustomization makes, by kind.
func Render(dir string) (map[string][]byte, error) {
	made, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		return nil, err
	}
	rendered := map[string][]byte{}
	for _, resource := range made.Resources() {
		if rendered[resource.GetKind()], err = resource.AsYAML(); err != nil {
			return nil, err
		}
	}
	return rendered, nil
}
