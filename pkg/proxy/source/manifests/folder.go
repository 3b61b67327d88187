package manifests

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
)

// folder is the state of a directory.
type folder struct {
	dir   string
	files map[string]*file
}

// file is the state of one file.
type file struct {
	version version
	sum     [sha256.Size]byte
	// objects are the objects in use: the valid ones of the current content and, while it has errors, the earlier objects
	// that it has no valid version of.
	objects []runtime.Object
	// parsed is the error of the content with the digest sum. err is the error of the current content, which may also be
	// that the file cannot be read.
	parsed, err error
	// ignored are the objects of other kinds that have not been logged yet.
	ignored []IgnoredObject
}

// version changes when a file does, and is available without reading it.
type version struct {
	device, inode     uint64
	size              int64
	modified, changed int64 // nanoseconds
}

// maxSize is the maximum size of a file in bytes. It protects the memory against a large file with a wrong name.
const maxSize = 256 << 20

// isManifest reports whether a file of that name is read.
func isManifest(name string) bool {
	if strings.HasPrefix(name, ".") {
		return false // also the ..data link of a mounted ConfigMap, whose files have visible links
	}
	switch strings.ToLower(filepath.Ext(name)) {
	case ".yaml", ".yml", ".json":
		return true
	}
	return false
}

// scan reads the files that may have changed since the last scan: those that are touched, have another version, or have
// errors. If the directory cannot be read, scan changes nothing.
func (f *folder) scan(touched func(name string) bool) error {
	entries, err := os.ReadDir(f.dir)
	if err != nil {
		return fmt.Errorf("read the directory of manifests: %w", err)
	}
	present := map[string]bool{}
	for _, entry := range entries {
		name := entry.Name()
		if !isManifest(name) || entry.IsDir() {
			continue
		}
		known := f.files[name]
		if known == nil {
			known = &file{}
		}
		if known.read(filepath.Join(f.dir, name), touched(name)) {
			f.files[name] = known
			present[name] = true
		}
	}
	maps.DeleteFunc(f.files, func(name string, _ *file) bool { return !present[name] })
	return nil
}

// read reads a file if it may have changed. It returns false if there is no file of that name any more.
func (f *file) read(path string, touched bool) bool {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		if _, linkErr := os.Lstat(path); linkErr != nil {
			return false
		}
		err = fmt.Errorf("%w: it is a dangling link", err)
	}
	if err != nil {
		f.err = err
		return true
	}
	if info.IsDir() {
		return false
	}
	now := versionOf(info)
	if !touched && f.err == nil && now == f.version {
		return true
	}
	f.version = now
	data, err := load(path, info)
	if err != nil {
		f.err = err
		return true
	}
	if sum := sha256.Sum256(data); sum != f.sum {
		f.take(Parse(path, data))
		f.sum = sum
	}
	f.err = f.parsed
	return true
}

// take uses a new content. If it has errors, no earlier object is removed: it may be in the part that could not be parsed.
func (f *file) take(content File) {
	objects := content.Objects
	if content.Err != nil {
		kept := map[key]bool{}
		for _, object := range objects {
			kept[keyOf(object)] = true
		}
		for _, object := range f.objects {
			if !kept[keyOf(object)] {
				objects = append(objects, object)
			}
		}
	}
	f.objects, f.parsed, f.ignored = objects, content.Err, content.Ignored
}

// load reads a file's content. It refuses anything but regular files: reading a pipe would block.
func load(path string, info fs.FileInfo) ([]byte, error) {
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file but %s", path, info.Mode())
	}
	if info.Size() > maxSize {
		return nil, fmt.Errorf("%s has %d bytes; the limit is %d", path, info.Size(), maxSize)
	}
	return os.ReadFile(path)
}

// placed is an object and its file.
type placed struct {
	file   string
	object runtime.Object
}

// objects returns the objects of all files. If several files contain an object, the first file's is used, and duplicates
// describes the others.
func (f *folder) objects() (objects map[key]placed, duplicates []error) {
	objects = map[key]placed{}
	for _, name := range slices.Sorted(maps.Keys(f.files)) {
		for _, object := range f.files[name].objects {
			k := keyOf(object)
			if first, taken := objects[k]; taken {
				duplicates = append(duplicates, fmt.Errorf("%s: %s is ignored, because %s contains it too; remove it from one of the two",
					filepath.Join(f.dir, name), describe(object), first.file))
				continue
			}
			objects[k] = placed{name, object}
		}
	}
	return objects, duplicates
}
