// Package watch watches the configuration file of a running proxy.
//
// If a file is written in place or replaced by a rename, and its configuration differs from the effective one, the
// process ends: the author wants it to take effect now, and the supervisor restarts the process. A ConfigMap is
// different: the kubelet swaps a symbolic link on the path, on all nodes of a cluster within about a minute. That must
// not restart all proxies at once, so a swap is only reported, and takes effect with the next restart.
package watch

import (
	"context"
	"crypto/sha256"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
	"k8s.io/klog/v2"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/config/configfile"
	"github.com/seed-11a05479/kube-proxy/pkg/logonce"
	"github.com/seed-11a05479/kube-proxy/pkg/userfile"
)

const (
	// settleTime is the delay from an event until the file is read, because an editor writes in several steps. Further
	// events do not extend it: in a busy directory they never end.
	settleTime = 500 * time.Millisecond
	// pollPeriod is the time between checks without an event, for file systems that send none.
	pollPeriod = time.Minute
)

// ErrChanged ends a watch after a change in place.
var ErrChanged = errors.New("the configuration file was changed; the process ends so that it is started again with the new configuration")

// Change is the result of reading a new content of the file.
type Change struct {
	// Differs reports whether the file differs from the effective configuration. An invalid file does.
	Differs bool
	// Err is the reason if the file is invalid.
	Err error
}

// Config configures a File.
type Config struct {
	// Path is the path of the file. A pipe cannot be read again, so it is not watched.
	Path string
	// Differs reports whether a content differs from the effective configuration. The error is the reason if it is invalid.
	Differs func(data []byte) (bool, error)
}

// File is a watched file.
type File struct {
	Config
	settle time.Duration // settleTime, or less in tests
	reader *userfile.Files
	// seen is the last state that was evaluated.
	seen state
}

// New returns a File. Call it right after the file was read: later changes are detected.
func New(config Config) *File {
	f := &File{Config: config, settle: settleTime, reader: userfile.NewFile(configfile.MaxSize)}
	f.seen, _ = f.read()
	return f
}

// Run watches the file until ctx ends, and then returns nil, or until the file was changed in place, and then returns
// ErrChanged. It calls changed for each new content that does not end the process.
func (f *File) Run(ctx context.Context, changed func(Change)) error {
	if f.seen.pipe {
		klog.FromContext(ctx).Info("The configuration was read from a pipe; it is not watched for changes", "file", f.Path)
		<-ctx.Done()
		return nil
	}
	watched := watchDirectories(klog.FromContext(ctx), f.Path)
	defer watched.close()
	poll := time.NewTicker(pollPeriod)
	defer poll.Stop()
	read := time.NewTimer(0) // the file may have changed before the watch began
	defer read.Stop()
	first, pending := true, true
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-read.C:
			pending = false
			watched.add(placeOf(f.Path)) // before the file is read, so that a later change is not missed
			now, data := f.read()
			if errors.Is(now.err, userfile.ErrNoAnswer) { // that is no change
				klog.FromContext(ctx).Error(now.err, "Cannot see whether the configuration file changed; reading it again", "file", f.Path)
				continue
			}
			if first || now.content != f.seen.content {
				change, end := f.evaluate(ctx, now, data)
				if end {
					return ErrChanged
				}
				if !first || change.Differs {
					changed(change)
				}
				first = false
			}
			f.seen = now.orPlaceOf(f.seen)
			continue
		case <-watched.events():
		case err := <-watched.errors():
			klog.FromContext(ctx).Error(err, "Events of the configuration file were lost; reading it again", "file", f.Path)
		case <-poll.C:
		}
		if !pending {
			read.Reset(f.settle)
			pending = true
		}
	}
}

// evaluate evaluates a new state of the file, and reports whether it ends the process.
func (f *File) evaluate(ctx context.Context, now state, data []byte) (change Change, end bool) {
	logger := klog.FromContext(ctx)
	differs, err := false, now.err
	if err == nil {
		differs, err = f.Differs(data)
	}
	switch {
	case err != nil:
		logger.Error(err, "The changed configuration file is invalid; keeping the configuration in force", "file", f.Path)
	case differs && !now.place.swapped(f.seen.place):
		return Change{Differs: true}, true
	case differs:
		logger.Info("The configuration file was swapped, as a ConfigMap is, and differs from the configuration in force; restart the pod to use it", "file", f.Path)
	default:
		logger.V(2).Info("The configuration file was changed, but not the configuration", "file", f.Path)
	}
	return Change{Differs: differs || err != nil, Err: err}, false
}

// state is what a path refers to at one moment.
type state struct {
	place   place
	content [sha256.Size]byte // a file that cannot be read has the digest of the error
	err     error             // why it cannot be read
	pipe    bool
}

// read reads a state and the content. Place and content are consistent, even if links are swapped at the same time.
func (f *File) read() (state, []byte) {
	for at := placeOf(f.Path); ; {
		content, err := f.reader.Read(f.Path, userfile.Version{})
		again := placeOf(f.Path)
		if again != at {
			at = again
			continue
		}
		if err == nil {
			return state{place: at, content: sha256.Sum256(content.Data)}, content.Data
		}
		other, special := errors.AsType[*userfile.NotRegularError](err)
		return state{place: at, content: sha256.Sum256([]byte("unreadable: " + err.Error())), err: err,
			pipe: special && other.Mode&fs.ModeNamedPipe != 0}, nil
	}
}

// orPlaceOf keeps the earlier place while there is no file: a file that reappears there was changed in place.
func (s state) orPlaceOf(before state) state {
	if s.place == (place{}) {
		s.place = before.place
	}
	return s
}

// place is the file and its directory without symbolic links. It is empty if there is no file.
type place struct {
	directory, file string
	link            bool // the path itself is a symbolic link
}

func placeOf(path string) place {
	directory, err := filepath.EvalSymlinks(filepath.Dir(path))
	if err != nil {
		return place{}
	}
	file, err := filepath.EvalSymlinks(path)
	if err != nil {
		return place{}
	}
	info, err := os.Lstat(path)
	return place{directory, file, err == nil && info.Mode()&os.ModeSymlink != 0}
}

// swapped reports whether a symbolic link on the path refers to another place than before. A file that replaced a link
// is not a swap.
func (p place) swapped(before place) bool {
	return p.directory != before.directory || p.link && p.file != before.file
}

// directories watches the relevant directories: that of the path, which contains a ConfigMap's link, and that of the file. If
// the kernel sends no events, only polling remains.
type directories struct {
	watcher *fsnotify.Watcher // nil if the kernel sends no events
	logger  klog.Logger
	failing logonce.Conditions[string] // by directory
}

func watchDirectories(logger klog.Logger, path string) *directories {
	d := &directories{logger: logger, failing: logonce.Conditions[string]{Again: logonce.Reminder}}
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		logger.Error(err, "Cannot watch the configuration file; reading it periodically", "file", path, "period", pollPeriod)
		return d
	}
	d.watcher = watcher
	d.watch(filepath.Dir(path))
	return d
}

// add watches the directory of the file itself, which changes with a swap.
func (d *directories) add(p place) {
	if p.file != "" {
		d.watch(filepath.Dir(p.file))
	}
}

func (d *directories) watch(directory string) {
	if d.watcher == nil {
		return
	}
	if err := d.watcher.Add(directory); err == nil {
		d.failing.Ended(directory)
	} else if d.failing.Changed(directory, err.Error()) {
		d.logger.Error(err, "Failed to watch the directory of the configuration file; reading the file periodically", "directory", directory, "period", pollPeriod)
	}
}

func (d *directories) events() <-chan fsnotify.Event {
	if d.watcher == nil {
		return nil
	}
	return d.watcher.Events
}

func (d *directories) errors() <-chan error {
	if d.watcher == nil {
		return nil
	}
	return d.watcher.Errors
}

func (d *directories) close() {
	if d.watcher != nil {
		d.watcher.Close()
	}
}
