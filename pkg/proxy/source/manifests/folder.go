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
	"syscall"

	"k8s.io/apimachinery/pkg/runtime"
)

// folder is what is known of the files of a directory.
type folder struct {
	dir   string
	files map[string]*file
}

// file is one file and what of it is in force.
type file struct {
	version version
	sum     [sha256.Size]byte
	// objects are in force: the good ones of the present content and, while anything is wrong with it, those that the
	// file held before and has no good one of now.
	objects []runtime.Object
	// parsed is the error of the content that sum is of; err is why the present content is not in force in full, which
	// may also be that it cannot be read. nil if it is in force.
	parsed, err error
	// told is the last error that was logged.
	told string
	// passedOver are the objects of other kinds that have not been logged yet.
	passedOver []PassedOver
}

// version tells whether a file may have changed without reading it.
type version struct {
	device, inode, size uint64
	modified, changed   syscall.Timespec
}

// maxSize is the largest file that is read, in bytes. It keeps a log file with a wrong name out of memory.
const maxSize = 256 << 20

// isManifest tells whether a file of that name is read.
func isManifest(name string) bool {
	if strings.HasPrefix(name, ".") {
		return false // hidden, or the links and folders of a mounted ConfigMap, whose files have links outside
	}
	switch strings.ToLower(filepath.Ext(name)) {
	case ".yaml", ".yml", ".json":
		return true
	}
	return false
}

// scan reads what may have changed since the last scan: files that touched says have, that look different,
// or that are bad. A directory that cannot be read leaves everything as it is.
func (f *folder) scan(touched func(name string) bool) error {
	entries, err := os.ReadDir(f.dir)
	if err != nil {
		return fmt.Errorf("read the folder of manifests: %w; what it held stays in force", err)
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

// read looks at a file again. It is false when there is no such file any more, or no file.
func (f *file) read(path string, touched bool) bool {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		if _, linkErr := os.Lstat(path); linkErr != nil {
			return false
		}
		err = fmt.Errorf("%w: it is a link to nothing", err)
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

// take puts a new content in force. As long as anything is wrong with it, nothing that the file held before is removed:
// it may be in the part that could not be read.
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
	f.objects, f.parsed, f.passedOver = objects, content.Err, content.PassedOver
}

func versionOf(info fs.FileInfo) version {
	v := version{size: uint64(info.Size())}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		v.device, v.inode, v.modified, v.changed = stat.Dev, stat.Ino, stat.Mtim, stat.Ctim
	}
	return v
}

// load reads a file's content. Only regular files are opened: reading a pipe would wait for its writer.
func load(path string, info fs.FileInfo) ([]byte, error) {
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file but %s", path, info.Mode())
	}
	if info.Size() > maxSize {
		return nil, fmt.Errorf("%s has %d bytes, more than the %d that a manifest may have", path, info.Size(), maxSize)
	}
	return os.ReadFile(path)
}

// placed is an object and the file that it comes from.
type placed struct {
	file   string
	object runtime.Object
}

// inForce is the content of all files. Of objects that several files have, the first file's is in force;
// clashes tells the others.
func (f *folder) inForce() (objects map[key]placed, clashes []error) {
	objects = map[key]placed{}
	for _, name := range slices.Sorted(maps.Keys(f.files)) {
		for _, object := range f.files[name].objects {
			k := keyOf(object)
			if first, taken := objects[k]; taken {
				clashes = append(clashes, fmt.Errorf("%s: %s is in %s already, which is in force; remove it from one of the two",
					filepath.Join(f.dir, name), describe(object), first.file))
				continue
			}
			objects[k] = placed{name, object}
		}
	}
	return objects, clashes
}
