package config

import (
	"context"
	"crypto/sha256"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"

	"github.com/seed-11a05479/kube-proxy/pkg/logonce"
	"github.com/seed-11a05479/kube-proxy/pkg/userfile"
)

// pollPeriod is the time between two looks at the file; one each second wakes an idle process some ten times a second. A new content
// is used when two of them find it, because an editor writes in several steps.
const pollPeriod = 5 * time.Second

// ErrChanged ends a watch after a change in place.
var ErrChanged = errors.New("the configuration file was changed; the process ends so that it is started again with the new configuration")

// Change is the result of reading a new content of the file.
type Change struct {
	// Differs reports whether the file differs from the effective configuration. An invalid file does.
	Differs bool
	// Err is the reason if the file is invalid.
	Err error
}

// Watch watches the configuration file of a running proxy.
//
// If the file is written in place or replaced by a rename, and its configuration differs from the effective one, the process ends: the
// author wants it to take effect now, and the supervisor restarts the process. A ConfigMap is different: the kubelet swaps a symbolic
// link on the path, on all nodes of a cluster within about a minute. That must not restart all proxies at once, so a swap is only
// reported, and takes effect with the next restart.
type Watch struct {
	path    string
	differs func(data []byte) (bool, error)
	period  time.Duration // pollPeriod, or less in tests
	reader  *userfile.Files
	pipe    bool // it was read from a pipe
	// seen is the last state that was evaluated.
	seen state
	// invalid is what Invalid returns.
	invalid atomic.Pointer[[]string]
}

// NewWatch returns a Watch of the file on a path. Call it right after the file was read: later changes are detected. A pipe cannot be read
// again, so it is not watched. differs reports whether a content differs from the effective configuration; its error is the reason if the
// content is invalid.
func NewWatch(path string, differs func(data []byte) (bool, error)) *Watch {
	w := &Watch{path: path, differs: differs, period: pollPeriod, reader: userfile.NewFile(MaxSize)}
	var err error
	w.seen, _, err = w.read()
	other, special := errors.AsType[*userfile.NotRegularError](err)
	w.pipe = special && other.Mode&fs.ModeNamedPipe != 0
	return w
}

// Run watches the file until ctx ends, and then returns nil, or until the file was changed in place, and then returns
// ErrChanged. It calls changed for each new content that does not end the process.
func (w *Watch) Run(ctx context.Context, changed func(Change)) error {
	logger := klog.FromContext(ctx)
	if w.pipe {
		logger.Info("The configuration was read from a pipe; it is not watched for changes", "file", w.path)
		<-ctx.Done()
		return nil
	}
	poll := time.NewTicker(w.period)
	defer poll.Stop()
	failing := logonce.Condition{Again: logonce.Reminder}
	last, first := w.seen, true // the file may have changed before it was first seen
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-poll.C:
		}
		now, data, err := w.read()
		if errors.Is(err, userfile.ErrNoAnswer) { // that is no change
			if failing.Changed(err.Error()) {
				logger.Error(err, "Cannot see whether the configuration file changed; reading it again", "file", w.path)
			}
			continue
		}
		failing.Ended()
		if now != last {
			last = now
			continue
		}
		if first || now.content != w.seen.content {
			change, end := w.evaluate(logger, now, data, err)
			w.note(logger, change.Err)
			if end {
				return ErrChanged
			}
			if !first || change.Differs {
				changed(change)
			}
			first = false
		}
		w.seen = now.orPlaceOf(w.seen)
	}
}

// note keeps for Invalid whether the file is invalid.
func (w *Watch) note(logger klog.Logger, err error) {
	var texts []string
	if err != nil {
		texts = []string{err.Error()}
	}
	if before := w.invalid.Swap(&texts); before != nil && len(*before) > 0 && err == nil {
		logger.Info("The configuration file is valid again", "file", w.path)
	}
}

// Invalid returns why the content of the file is not in use, as one text; none if it is valid. It is safe for concurrent use, and of a
// nil Watch.
func (w *Watch) Invalid() []string {
	if w == nil || w.invalid.Load() == nil {
		return nil
	}
	return *w.invalid.Load()
}

// evaluate evaluates a new state of the file, which err is about if it cannot be read, and reports whether it ends the process.
func (w *Watch) evaluate(logger klog.Logger, now state, data []byte, err error) (change Change, end bool) {
	differs := false
	if err == nil {
		differs, err = w.differs(data)
	}
	switch {
	case err != nil:
		logger.Error(err, "The changed configuration file is invalid; keeping the configuration in force", "file", w.path)
	case differs && !now.place.swapped(w.seen.place):
		return Change{Differs: true}, true
	case differs:
		logger.Info("The configuration file was swapped, as a ConfigMap is, and differs from the configuration in force; restart the pod to use it", "file", w.path)
	default:
		logger.V(2).Info("The configuration file was changed, but not the configuration", "file", w.path)
	}
	return Change{Differs: differs || err != nil, Err: err}, false
}

// state is what a path refers to at one moment.
type state struct {
	place   place
	content [sha256.Size]byte // a file that cannot be read has the digest of the error
}

// read reads the state and the content. Place and content are consistent, even if links are swapped at the same time: the place is
// the same before and after. The place of a file that does not answer is not looked up: that might never return.
func (w *Watch) read() (state, []byte, error) {
	for at := w.seen.place; ; {
		content, err := w.reader.Read(w.path, userfile.Version{})
		if errors.Is(err, userfile.ErrNoAnswer) {
			return state{}, nil, err
		}
		if now := placeOf(w.path); now != at {
			at = now
			continue
		}
		if err != nil {
			return state{at, sha256.Sum256([]byte("unreadable: " + err.Error()))}, nil, err
		}
		return state{at, sha256.Sum256(content.Data)}, content.Data, nil
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
