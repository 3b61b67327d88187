package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"time"
)

// release is one run: the flags, and values derived from them.
type release struct {
	// root is the repository, out the folder to write, image the folder that make image wrote.
	root, out, image string
	// version, revision and source identify what is released; ldflags are the linker's flags, which hold the version.
	version, revision, source, ldflags string
	// created is the time of the commit.
	created time.Time
}

func main() {
	var r release
	var created int64
	flag.StringVar(&r.root, "root", "", "the repository")
	flag.StringVar(&r.out, "out", "", "the folder to write; existing files in it are removed")
	flag.StringVar(&r.image, "image", "", "the folder with the image, as make image writes it")
	flag.StringVar(&r.version, "version", "", "the version, such as v1.2.3")
	flag.StringVar(&r.revision, "revision", "", "the commit")
	flag.StringVar(&r.source, "source", "https://github.com/seed-11a05479/kube-proxy", "where the source is")
	flag.StringVar(&r.ldflags, "ldflags", "", "the linker's flags")
	flag.Int64Var(&created, "created", 0, "the time of the commit, in seconds since 1970")
	flag.Parse()
	r.created = time.Unix(created, 0).UTC()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := r.run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// semantic matches a semantic version with the v of git tags.
var semantic = regexp.MustCompile(`^v(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?$`)

// run writes the release.
func (r *release) run(ctx context.Context) error {
	if r.root == "" || r.out == "" || r.image == "" {
		return errors.New("run make release, which sets the required flags")
	}
	if !semantic.MatchString(r.version) {
		return fmt.Errorf("the version %q is not a semantic version such as v1.2.3; tag the commit", r.version)
	}
	if err := os.RemoveAll(r.out); err != nil {
		return err
	}
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return err
	}
	for _, step := range []func(context.Context) error{r.copyImage, r.writePrograms, r.writeKrew, r.writeChart, r.writeNotes, r.writeSums} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	fmt.Printf("%s is in %s\n", r.version, r.out)
	return nil
}

// copyImage copies the archive of the image and its bills of materials.
func (r *release) copyImage(context.Context) error {
	files, err := filepath.Glob(filepath.Join(r.image, "kube-proxy_linux_*.spdx.json"))
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return fmt.Errorf("%s holds no image; run make image", r.image)
	}
	targets := map[string]string{filepath.Join(r.image, "kube-proxy.oci.tar"): "kube-proxy-image.oci.tar"}
	for _, file := range files {
		targets[file] = "kube-proxy-image" + filepath.Base(file)[len("kube-proxy"):]
	}
	for from, name := range targets {
		if err := copyFile(filepath.Join(r.out, name), from, 0o644); err != nil {
			return err
		}
	}
	return nil
}

func copyFile(to, from string, mode os.FileMode) error {
	body, err := os.ReadFile(filepath.Clean(from))
	if err != nil {
		return err
	}
	return os.WriteFile(to, body, mode)
}
