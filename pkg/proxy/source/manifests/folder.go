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

	"github.com/seed-11a05479/kube-proxy/pkg/userfile"
)

// folder is the state of a directory.
type folder struct {
	dir     string
	files   map[string]*file
	reader  *userfile.Files
	lenient bool // see Parse
}

// file is the state of one file.
type file struct {
	version userfile.Version
	sum     [sha256.Size]byte
	// objects are the objects in use: the valid ones of the current content and, while it has errors, the earlier objects
	// that it has no valid version of.
	objects []runtime.Object
	// parsed is the error of the content with the digest sum. err is the error of the current content, which may also be
	// that the file cannot be read.
	parsed, err error
	// ignored are the objects of other kinds, and refused is what is refused of objects that are in use.
	ignored []IgnoredObject
	refused []*Error
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
		if known.read(f, filepath.Join(f.dir, name), touched(name)) {
			f.files[name] = known
			present[name] = true
		}
	}
	maps.DeleteFunc(f.files, func(name string, _ *file) bool { return !present[name] })
	return nil
}

// read reads a file if it may have changed. It returns false if there is no file of that name any more.
func (f *file) read(from *folder, path string, touched bool) bool {
	known := f.version
	if touched || f.err != nil {
		known = userfile.Version{}
	}
	content, err := from.reader.Read(path, known)
	switch {
	case errors.Is(err, userfile.ErrUnchanged):
		return true
	case errors.Is(err, fs.ErrNotExist):
		if _, linkErr := os.Lstat(path); linkErr != nil {
			return false
		}
		f.err = fmt.Errorf("%w: it is a dangling link", err)
		return true
	case err != nil:
		other, ok := errors.AsType[*userfile.NotRegularError](err)
		f.err = err
		return !ok || !other.Mode.IsDir()
	}
	f.version = content.Version
	if sum := sha256.Sum256(content.Data); sum != f.sum {
		f.take(Parse(path, content.Data, from.lenient))
		f.sum = sum
	}
	f.err = f.parsed
	return true
}

// take uses a new content. If it has errors, no earlier object is removed: it may be in the part that could not be parsed.
func (f *file) take(content File) {
	objects := content.Objects
	if content.Err != nil {
		kept := map[Key]bool{}
		for _, object := range objects {
			kept[keyOf(object)] = true
		}
		for _, object := range f.objects {
			if !kept[keyOf(object)] {
				objects = append(objects, object)
			}
		}
	}
	f.objects, f.parsed, f.ignored, f.refused = objects, content.Err, content.Ignored, content.Refused
}

// placed is an object and its file.
type placed struct {
	file   string
	object runtime.Object
}

// objects returns the objects of all files. If several files contain an object, the first file's is used, and duplicates
// describes the others.
func (f *folder) objects() (objects map[Key]placed, duplicates []*Error) {
	objects = map[Key]placed{}
	for _, name := range slices.Sorted(maps.Keys(f.files)) {
		for _, object := range f.files[name].objects {
			k := keyOf(object)
			if first, taken := objects[k]; taken {
				err := fmt.Errorf("%s is ignored, because %s contains it too; remove it from one of the two", k, first.file)
				duplicates = append(duplicates, &Error{File: filepath.Join(f.dir, name), Object: k, Err: err})
				continue
			}
			objects[k] = placed{name, object}
		}
	}
	return objects, duplicates
}

// unanswered reports whether a file did not answer when it was last read.
func (f *folder) unanswered() bool {
	for _, one := range f.files {
		if errors.Is(one.err, userfile.ErrNoAnswer) {
			return true
		}
	}
	return false
}
