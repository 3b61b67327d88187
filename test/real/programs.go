//go:build linux

package main

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/match"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/seed-11a05479/kube-proxy/test/e2e"
)

const (
	// ourImage is what make real calls the image, and what the manifests and the chart do.
	ourImage = "localhost/kube-proxy:latest"
	// testImage has this program.
	testImage = "localhost/real:test"
)

// controlPlane are the programs of Kubernetes, and etcd, that only the first node runs.
var controlPlane = []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"}

// pinned are the programs that this module pins, each by its module and the package in it.
var pinned = [][2]string{
	{"github.com/containerd/containerd/v2", "/cmd/containerd"},
	{"github.com/containerd/containerd/v2", "/cmd/containerd-shim-runc-v2"},
	{"github.com/containerd/containerd/v2", "/cmd/ctr"},
	{"github.com/containernetworking/plugins", "/plugins/main/bridge"},
	{"github.com/containernetworking/plugins", "/plugins/main/loopback"},
	{"github.com/containernetworking/plugins", "/plugins/ipam/host-local"},
	{"helm.sh/helm/v4", "/cmd/helm"},
}

// prepare builds all programs, those that run Kubernetes' specs if there are any, links them in the folder bin by their names, and writes the images.
func (w *world) prepare(ctx context.Context, specs bool) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if err := errors.Join(os.MkdirAll(w.path("bin"), 0o755), os.MkdirAll(w.path("images"), 0o755)); err != nil {
		return err
	}
	// A copy, because "go run" has built it in a folder for temporary files, which the nodes do not see.
	if _, err := output(command(ctx, "cp", self, w.program("real"))); err != nil {
		return err
	}
	programs := map[string]string{"systemctl": "/bin/true"} // there is no systemd, but kubeadm asks
	kubernetes := append([]string{"kubelet", "kubeadm", "kubectl", "kube-proxy"}, controlPlane...)
	if specs {
		kubernetes = append(kubernetes, "agnhost", "regression-issue-74839", "e2e.test", "ginkgo")
	}
	for _, name := range kubernetes {
		if programs[name], err = e2e.Program(ctx, name); err != nil {
			return err
		}
	}
	for _, p := range pinned {
		if programs[path.Base(p[1])], err = e2e.Build(ctx, ".", p[0], p[0]+p[1]); err != nil {
			return err
		}
	}
	if programs["coredns"], err = e2e.Build(ctx, ".", "github.com/coredns/coredns", "./coredns"); err != nil {
		return err
	}
	for name, target := range programs {
		if err := os.Symlink(target, w.program(name)); err != nil {
			return err
		}
	}
	if specs {
		if err := w.writeSpecImages(ctx); err != nil {
			return err
		}
	}
	return w.writeImages(ctx)
}

// references returns the images that kubeadm wants, by the names of their programs.
func (w *world) references(ctx context.Context) (map[string]string, error) {
	version, err := output(command(ctx, w.program("kubeadm"), "version", "-o", "short"))
	if err != nil {
		return nil, err
	}
	list, err := output(command(ctx, w.program("kubeadm"), "config", "images", "list", "--kubernetes-version", strings.TrimSpace(version)))
	if err != nil {
		return nil, err
	}
	return newest(strings.Fields(list)), nil
}

// newest returns references to images by the last part of their names: of several the last one in alphabetical order.
func newest(refs []string) map[string]string {
	all := map[string]string{}
	for _, ref := range refs {
		name, _, _ := strings.Cut(path.Base(ref), ":")
		all[name] = max(all[name], ref)
	}
	return all
}

// writeImages writes the images as archives: each has one program. Kubernetes' kube-proxy needs the tools of our image.
func (w *world) writeImages(ctx context.Context) error {
	refs, err := w.references(ctx)
	if err != nil {
		return err
	}
	ours, err := w.ourImage()
	if err != nil {
		return fmt.Errorf("bin/image: %w; run make image", err)
	}
	for program, ref := range refs {
		base, file, command := empty.Image, w.program(program), []string{"/usr/local/bin/" + program}
		switch program {
		case "kube-proxy":
			base = ours
		case "pause":
			file, command = w.program("real"), append(command, "pause")
		}
		if err := writeImage(w.path("images", program+".tar"), ref, base, file, command); err != nil {
			return err
		}
	}
	return writeImage(w.path("images", "real.tar"), testImage, empty.Image, w.program("real"), []string{"/usr/local/bin/real"})
}

// ourImage returns the image that make image has written, of this machine's architecture.
func (w *world) ourImage() (v1.Image, error) {
	index, err := layout.ImageIndexFromPath(filepath.Join(w.repository, "bin", "image", "oci"))
	if err != nil {
		return nil, err
	}
	indexes, err := partial.FindIndexes(index, match.MediaTypes(string(types.OCIImageIndex)))
	if err != nil || len(indexes) != 1 {
		return nil, errors.Join(fmt.Errorf("%d indexes in place of one", len(indexes)), err)
	}
	images, err := partial.FindImages(indexes[0], match.Platforms(v1.Platform{OS: "linux", Architecture: runtime.GOARCH}))
	if err != nil || len(images) != 1 {
		return nil, errors.Join(fmt.Errorf("%d images for %s in place of one", len(images), runtime.GOARCH), err)
	}
	return images[0], nil
}

// writeImage writes an archive for ctr: a program of this machine on top of an image. The first word of the command is the program's path
// in the image.
func writeImage(archive, ref string, base v1.Image, program string, command []string) error {
	tag, err := name.NewTag(ref)
	if err != nil {
		return err
	}
	image, err := withProgram(base, program, command)
	if err != nil {
		return err
	}
	return tarball.WriteToFile(archive, tag, image)
}

// withProgram returns an image with a program of this machine, which it runs by the command.
func withProgram(base v1.Image, program string, command []string) (v1.Image, error) {
	body, err := os.ReadFile(program)
	if err != nil {
		return nil, err
	}
	image, err := withFiles(base, map[string][]byte{command[0]: body})
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", runtime.GOARCH
	config.Config.Entrypoint, config.Config.Cmd = command[:1], command[1:]
	config.Config.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	return mutate.ConfigFile(image, config)
}

// withFiles returns an image with executable files, by their absolute paths in it.
func withFiles(base v1.Image, files map[string][]byte) (v1.Image, error) {
	var layer bytes.Buffer
	archive := tar.NewWriter(&layer)
	var errs []error
	for _, file := range slices.Sorted(maps.Keys(files)) {
		err := archive.WriteHeader(&tar.Header{Name: strings.TrimPrefix(file, "/"), Mode: 0o755, Size: int64(len(files[file]))})
		if err == nil {
			_, err = archive.Write(files[file])
		}
		errs = append(errs, err)
	}
	if err := errors.Join(append(errs, archive.Close())...); err != nil {
		return nil, err
	}
	return mutate.AppendLayers(base, static.NewLayer(layer.Bytes(), types.DockerUncompressedLayer))
}
