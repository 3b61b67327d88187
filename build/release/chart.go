package main

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
)

// chartDir is the folder of the chart in the repository.
const chartDir = "build/charts/kube-proxy"

// versions are the two lines of Chart.yaml that hold the release's version.
var versions = regexp.MustCompile(`(?m)^(version|appVersion):.*$`)

// writeChart packs the chart as Helm does, with the release's version in place of that in Chart.yaml. Helm itself would write
// the current time.
func (r *release) writeChart(context.Context) error {
	root := filepath.Join(r.root, filepath.FromSlash(chartDir))
	var files []packed
	err := filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		body, err := os.ReadFile(filepath.Clean(file))
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, file)
		if err != nil {
			return err
		}
		name := path.Join("kube-proxy", filepath.ToSlash(rel))
		if name == "kube-proxy/Chart.yaml" {
			body, err = r.stamp(body)
		}
		files = append(files, packed{name, 0o644, body})
		return err
	})
	if err != nil {
		return fmt.Errorf("pack the chart: %w", err)
	}
	archive, err := r.pack(files...)
	if err != nil {
		return fmt.Errorf("pack the chart: %w", err)
	}
	return os.WriteFile(filepath.Join(r.out, "kube-proxy-"+strings.TrimPrefix(r.version, "v")+".tgz"), archive, 0o644)
}

// stamp sets the versions in Chart.yaml. The chart's has no v, and the program's is the tag of the image, which has no +.
func (r *release) stamp(chart []byte) ([]byte, error) {
	if found := len(versions.FindAll(chart, -1)); found != 2 {
		return nil, fmt.Errorf("%s/Chart.yaml has %d lines that begin with version: or appVersion:, want one of each", chartDir, found)
	}
	tag := strings.ReplaceAll(r.version, "+", "_")
	return versions.ReplaceAllFunc(chart, func(line []byte) []byte {
		if bytes.HasPrefix(line, []byte("app")) {
			return []byte(`appVersion: "` + tag + `"`)
		}
		return []byte("version: " + strings.TrimPrefix(r.version, "v"))
	}), nil
}
