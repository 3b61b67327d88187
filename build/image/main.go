package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/seed-11a05479/kube-proxy/build/image/sbom"
)

// about is the metadata of the image.
type about struct {
	Version, Revision, Source string
	// Created is the time of the commit.
	Created time.Time
}

// labels are the annotations that the OCI image specification knows.
func (a about) labels() map[string]string {
	const key = "org.opencontainers.image."
	return map[string]string{
		key + "title": "kube-proxy", key + "description": "Service proxy for Kubernetes nodes, on nftables or iptables",
		key + "version": a.Version, key + "revision": a.Revision, key + "source": a.Source,
		key + "created": a.Created.UTC().Format(time.RFC3339), key + "licenses": "Apache-2.0",
	}
}

// options are the flags.
type options struct {
	pins, cache, binaries, out, ref string
	architectures                   string
	created                         int64
	about                           about
	update                          bool
}

func main() {
	var o options
	flag.StringVar(&o.pins, "packages", "packages.json", "the file that pins the Debian packages")
	flag.BoolVar(&o.update, "update", false, "pin the newest packages of the release, and build nothing")
	flag.StringVar(&o.cache, "cache", "", "the folder where fetched packages are kept")
	flag.StringVar(&o.binaries, "binaries", "", "a folder that holds linux_ARCH/{kube-proxy,go-runner} for each architecture")
	flag.StringVar(&o.architectures, "arch", "amd64,arm64", "the architectures, by their names in Go and Debian")
	flag.StringVar(&o.out, "out", "", "the folder to write the image to")
	flag.StringVar(&o.ref, "ref", "", "the name of the image, with its tag")
	flag.Int64Var(&o.created, "created", 0, "the time of every file, in seconds since 1970: that of the commit")
	flag.StringVar(&o.about.Version, "version", "", "the version of kube-proxy")
	flag.StringVar(&o.about.Revision, "revision", "", "the commit")
	flag.StringVar(&o.about.Source, "source", "https://github.com/seed-11a05479/kube-proxy", "where the source is")
	flag.Parse()
	o.about.Created = time.Unix(o.created, 0).UTC()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

// run builds the image, or updates the pins.
func run(ctx context.Context, o options) error {
	if flag.NArg() > 0 || o.cache == "" {
		return errors.New("run make image or make image-packages, which set the required flags")
	}
	p, err := readPins(o.pins)
	if err != nil {
		return err
	}
	if o.update {
		return repin(ctx, p, o)
	}
	ref, err := name.NewTag(strings.ReplaceAll(o.ref, "+", "_"), name.WithDefaultRegistry("localhost"))
	if err != nil {
		return fmt.Errorf("-ref: %w", err)
	}
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return err
	}
	architectures := strings.Split(o.architectures, ",")
	images := map[string]v1.Image{}
	for _, arch := range architectures {
		if images[arch], err = build(ctx, p, arch, o); err != nil {
			return fmt.Errorf("linux/%s: %w", arch, err)
		}
	}
	index := newIndex(o.about, images, architectures)
	dir := filepath.Join(o.out, "oci")
	if err := writeLayout(dir, ref, index); err != nil {
		return err
	}
	if err := writeArchive(filepath.Join(o.out, "kube-proxy.oci.tar"), dir, o.about.Created); err != nil {
		return err
	}
	sum, err := index.Digest()
	if err != nil {
		return err
	}
	fmt.Printf("%s@%s\n", ref, sum)
	return os.WriteFile(filepath.Join(o.out, "digest"), []byte(sum.String()+"\n"), 0o644)
}

// repin writes the newest packages into the file of pins.
func repin(ctx context.Context, p *pins, o options) error {
	for arch := range strings.SplitSeq(o.architectures, ",") {
		a, err := newApt(o.cache, p.Release, arch)
		if err != nil {
			return err
		}
		p.Packages[arch], err = a.resolve(ctx, p.Wanted)
		if err := errors.Join(err, a.lock.Close()); err != nil {
			return err
		}
	}
	return p.write(o.pins)
}

// build builds the image of one architecture, and writes its SBOM.
func build(ctx context.Context, p *pins, arch string, o options) (v1.Image, error) {
	a, err := newApt(o.cache, p.Release, arch)
	if err != nil {
		return nil, err
	}
	defer a.lock.Close()
	files, err := a.fetch(ctx, p.Packages[arch])
	if err != nil {
		return nil, err
	}
	packages, binaries := rootfs{}, rootfs{}
	for i, file := range files {
		if err := packages.addPackage(ctx, p.Packages[arch][i], file); err != nil {
			return nil, err
		}
	}
	packages.addBase(p)
	from := filepath.Join(o.binaries, "linux_"+arch)
	proxy, runner := filepath.Join(from, "kube-proxy"), filepath.Join(from, "go-runner")
	if err := errors.Join(binaries.addFile(strings.TrimPrefix(entrypoint, "/"), proxy), binaries.addFile("go-runner", runner)); err != nil {
		return nil, err
	}
	materials, err := bill(arch, o.about, p, []string{proxy, runner})
	if err != nil {
		return nil, err
	}
	image, err := newImage(arch, o.about, packages, binaries)
	if err != nil {
		return nil, err
	}
	size, err := compressedSize(image)
	if err != nil {
		return nil, err
	}
	fmt.Printf("linux/%s: %.1f MB compressed, %d Debian packages\n", arch, float64(size)/1e6, len(files))
	return image, os.WriteFile(filepath.Join(o.out, "kube-proxy_linux_"+arch+".spdx.json"), materials, 0o644)
}

// bill returns the bill of materials of an image: its Debian packages, and the Go modules of its binaries.
func bill(arch string, about about, p *pins, binaries []string) ([]byte, error) {
	var parts []sbom.Component
	for _, pin := range p.Packages[arch] {
		parts = append(parts, sbom.Component{
			ID: "deb-" + pin.Name, Name: pin.Name, Version: pin.Version, SHA256: pin.SHA256,
			PURL: fmt.Sprintf("pkg:deb/debian/%s@%s?arch=%s&distro=debian-%s", url.PathEscape(pin.Name), url.PathEscape(pin.Version), arch, p.VersionID),
		})
	}
	for _, binary := range binaries {
		modules, err := sbom.Binary(binary, filepath.Base(binary), about.Version)
		if err != nil {
			return nil, err
		}
		parts = append(parts, modules...)
	}
	return sbom.Write(sbom.Subject{
		Name: "kube-proxy", Platform: "linux/" + arch, PURL: "pkg:oci/kube-proxy?arch=" + arch,
		Version: about.Version, Revision: about.Revision, Source: about.Source, Created: about.Created,
	}, parts)
}
