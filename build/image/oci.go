package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// entrypoint is the path of the program in the manifests of kubeadm and EKS.
const entrypoint = "/usr/local/bin/kube-proxy"

// newImage returns an image of one architecture: the packages in one layer, and the binaries, which change more often,
// in another.
func newImage(arch string, about about, packages, binaries rootfs) (v1.Image, error) {
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	for _, l := range []struct {
		what string
		tree rootfs
	}{{"Debian packages", packages}, {"kube-proxy " + about.Version, binaries}} {
		archive, err := l.tree.archive(about.Created)
		if err != nil {
			return nil, fmt.Errorf("layer %s: %w", l.what, err)
		}
		layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(archive)), nil },
			tarball.WithMediaType(types.OCILayer), tarball.WithCompressionLevel(gzip.DefaultCompression), tarball.WithCompressedCaching)
		if err != nil {
			return nil, fmt.Errorf("layer %s: %w", l.what, err)
		}
		image, err = mutate.Append(image, mutate.Addendum{Layer: layer, History: v1.History{Created: v1.Time{Time: about.Created}, CreatedBy: l.what}})
		if err != nil {
			return nil, fmt.Errorf("layer %s: %w", l.what, err)
		}
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = "linux", arch, v1.Time{Time: about.Created}
	config.Config = v1.Config{
		Entrypoint: []string{entrypoint},
		Env:        []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
		WorkingDir: "/",
		Labels:     about.labels(),
	}
	return mutate.ConfigFile(image, config)
}

// newIndex returns the index of the images of all architectures.
func newIndex(about about, images map[string]v1.Image, order []string) v1.ImageIndex {
	index := mutate.IndexMediaType(v1.ImageIndex(empty.Index), types.OCIImageIndex)
	for _, arch := range order {
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add:        images[arch],
			Descriptor: v1.Descriptor{MediaType: types.OCIManifestSchema1, Platform: &v1.Platform{OS: "linux", Architecture: arch}},
		})
	}
	return mutate.Annotations(index, about.labels()).(v1.ImageIndex)
}

// writeLayout writes the index as an OCI image layout, replacing an earlier one. The annotations name the image when
// the layout is imported.
func writeLayout(dir string, ref name.Tag, index v1.ImageIndex) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	return path.AppendIndex(index, layout.WithAnnotations(map[string]string{
		"org.opencontainers.image.ref.name": ref.TagStr(),
		"io.containerd.image.name":          ref.Name(),
	}))
}

// writeArchive writes a layout as one file, for tools that import OCI archives.
func writeArchive(path, dir string, when time.Time) (err error) {
	out, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	w := tar.NewWriter(out)
	err = filepath.WalkDir(dir, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || file == dir {
			return err
		}
		rel, err := filepath.Rel(dir, file)
		if err != nil {
			return err
		}
		if entry.IsDir() {
			return w.WriteHeader(&tar.Header{Name: rel + "/", Mode: 0o755, ModTime: when, Typeflag: tar.TypeDir})
		}
		body, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if err := w.WriteHeader(&tar.Header{Name: rel, Mode: 0o644, Size: int64(len(body)), ModTime: when, Typeflag: tar.TypeReg}); err != nil {
			return err
		}
		_, err = w.Write(body)
		return err
	})
	return errors.Join(err, w.Close())
}

// compressedSize returns the number of bytes that a node downloads for an image.
func compressedSize(image v1.Image) (total int64, err error) {
	manifest, err := image.Manifest()
	if err != nil {
		return 0, err
	}
	total = manifest.Config.Size
	for _, layer := range manifest.Layers {
		total += layer.Size
	}
	return total, nil
}
