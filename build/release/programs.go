package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/seed-11a05479/kube-proxy/build/image/sbom"
)

// platform is an operating system and an architecture, by their names in Go.
type platform struct{ os, arch string }

// platforms are those that programs are released for. The proxy runs on Linux; its other commands, such as "config convert"
// and "audit", run on the machines of administrators too.
func platforms() []platform {
	return []platform{{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "amd64"}, {"darwin", "arm64"}, {"windows", "amd64"}}
}

// writePrograms compiles kube-proxy for each platform, and lists what it is made of. Those for Linux are the image's.
func (r *release) writePrograms(ctx context.Context) error {
	for _, p := range platforms() {
		name := "kube-proxy_" + p.os + "_" + p.arch
		path := filepath.Join(r.out, name)
		if p.os == "windows" {
			path += ".exe"
		}
		var err error
		if p.os == "linux" {
			err = copyFile(path, filepath.Join(r.image, p.os+"_"+p.arch, "kube-proxy"), 0o755)
		} else {
			err = r.compile(ctx, p, path)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		parts, err := sbom.Binary(path, "kube-proxy", r.version)
		if err != nil {
			return err
		}
		subject := sbom.Subject{Name: "kube-proxy", Platform: p.os + "/" + p.arch, PURL: parts[0].PURL,
			Version: r.version, Revision: r.revision, Source: r.source, Created: r.created}
		materials, err := sbom.Write(subject, parts[1:])
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(r.out, name+".spdx.json"), materials, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// compile compiles kube-proxy for a platform.
func (r *release) compile(ctx context.Context, p platform, path string) error {
	absolute, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", r.ldflags, "-o", absolute, "./cmd/kube-proxy")
	build.Dir = r.root
	build.Env = append(os.Environ(), "GOOS="+p.os, "GOARCH="+p.arch, "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w: %s", err, out)
	}
	return nil
}
