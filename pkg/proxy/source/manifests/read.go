package manifests

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"

	"github.com/seed-11a05479/kube-proxy/pkg/userfile"
)

// maxOne is the maximum size in bytes of a file that is read alone: that of a cluster with a million endpoints, as YAML.
const maxOne = 1 << 30

// Read reads a directory of manifests as a Source does, one file, or standard input if path is "-", once and leniently: objects
// may come from another API server, or be meant for one. Unknown fields, and fields that an API server sets or allocates, are no
// errors; File.Refused has them. The objects are as they are written, without defaults. An error means that nothing could be
// read; File.Err joins those of single files.
func Read(path string, stdin io.Reader) (File, error) {
	info, err := os.Stat(path)
	switch {
	case path == "-":
	case err != nil:
		return File{}, err
	case info.IsDir():
		return readFolder(path)
	}
	name, data, err := userfile.ReadArgument(path, stdin, maxOne)
	all := File{Err: err}
	if err == nil {
		all = Parse(name, data, true)
	}
	return all, nil
}

// readFolder reads a directory.
func readFolder(dir string) (all File, err error) {
	f := folder{dir: dir, files: map[string]*file{}, reader: userfile.NewFile(maxSize), lenient: true}
	if err := f.scan(func(string) bool { return true }); err != nil {
		return all, err
	}
	if len(f.files) == 0 {
		return all, fmt.Errorf("%s holds no .yaml, .yml or .json file", dir)
	}
	var errs []error
	used, duplicates := f.objects()
	for _, name := range slices.Sorted(maps.Keys(f.files)) {
		one := f.files[name]
		for _, object := range one.objects {
			if used[keyOf(object)].object == object {
				all.Objects = append(all.Objects, object)
			}
		}
		all.Ignored = append(all.Ignored, one.ignored...)
		all.Refused = append(all.Refused, one.refused...)
		errs = append(errs, one.err)
	}
	all.Refused = append(all.Refused, duplicates...)
	all.Err = errors.Join(errs...)
	return all, nil
}
