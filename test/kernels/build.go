package main

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// build compiles kube-proxy, the demo and the tests of suites to a folder. It returns the files that the machine needs in
// addition to those of a release: their paths there, and here.
func build(ctx context.Context, dir string, chosen []suite) (map[string]string, error) {
	files := map[string]string{}
	compile := func(at string, args ...string) error {
		path := filepath.Join(dir, fmt.Sprint(len(files)))
		args = append(args[:len(args)-1:len(args)-1], "-ldflags", "-s -w", "-o", path, args[len(args)-1])
		if out, err := exec.CommandContext(ctx, "go", args...).CombinedOutput(); err != nil {
			return fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, out)
		}
		files[at] = path
		return nil
	}
	for _, program := range []struct{ at, folder string }{{"bin/kube-proxy", "cmd/kube-proxy"}, {"bin/demo", "test/demo"}} {
		if err := compile(sources+"/"+program.at, "build", "./"+program.folder); err != nil {
			return nil, err
		}
	}
	folders := []string{"examples", "test/cases", "test/hostile"}
	for _, s := range chosen {
		if s.program != "" || files[s.binary()] != "" {
			continue // a program, or the second suite of a package
		}
		if err := compile(s.binary(), "test", "-c", "./"+s.folder); err != nil {
			return nil, err
		}
		if data := s.folder + "/testdata"; isFolder(data) {
			folders = append(folders, data)
		}
	}
	for _, folder := range folders {
		err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.Type().IsRegular() {
				files[sources+"/"+path] = path
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return files, nil
}

func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}
