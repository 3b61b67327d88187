//go:build linux

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// folder is a copy of the examples that the demo may change.
type folder struct {
	// scratch is the parent of the watched folder, for files that are not complete yet.
	scratch, dir string
}

func copyFolder(from string) (f folder, err error) {
	if f.scratch, err = os.MkdirTemp("", "kube-proxy-demo-"); err != nil {
		return f, err
	}
	f.dir = filepath.Join(f.scratch, filepath.Base(from))
	return f, os.CopyFS(f.dir, os.DirFS(from))
}

func (f folder) remove() error {
	if f.scratch == "" {
		return nil
	}
	return os.RemoveAll(f.scratch)
}

// edit is a change of a file: pairs of old and new texts, as for strings.NewReplacer.
type edit struct {
	file   string
	oldNew []string
}

// back returns the reverse edit.
func (e edit) back() edit {
	swapped := slices.Clone(e.oldNew)
	for pair := range slices.Chunk(swapped, 2) {
		slices.Reverse(pair)
	}
	return edit{e.file, swapped}
}

// write writes a file atomically and returns the time just before it appears.
func (f folder) write(name, text string) (time.Time, error) {
	if err := os.WriteFile(filepath.Join(f.scratch, name), []byte(text), 0o644); err != nil {
		return time.Time{}, err
	}
	return f.publish(name)
}

// edit makes edits of different files at the same time, and returns the time just before they appear. It returns an error
// if an old text is missing.
func (f folder) edit(edits ...edit) (time.Time, error) {
	var names []string
	for _, e := range edits {
		data, err := os.ReadFile(filepath.Join(f.dir, e.file))
		if err != nil {
			return time.Time{}, err
		}
		for i := 0; i < len(e.oldNew); i += 2 {
			if !strings.Contains(string(data), e.oldNew[i]) {
				return time.Time{}, fmt.Errorf("edit %s: text to replace not found: %q", e.file, e.oldNew[i])
			}
		}
		text := strings.NewReplacer(e.oldNew...).Replace(string(data))
		if err := os.WriteFile(filepath.Join(f.scratch, e.file), []byte(text), 0o644); err != nil {
			return time.Time{}, err
		}
		names = append(names, e.file)
	}
	return f.publish(names...)
}

// publish moves complete files into the watched folder.
func (f folder) publish(names ...string) (time.Time, error) {
	moment := time.Now()
	for _, name := range names {
		if err := os.Rename(filepath.Join(f.scratch, name), filepath.Join(f.dir, name)); err != nil {
			return moment, err
		}
	}
	return moment, nil
}

func (f folder) delete(name string) error { return os.Remove(filepath.Join(f.dir, name)) }
