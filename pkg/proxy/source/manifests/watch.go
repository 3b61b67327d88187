package manifests

import (
	"context"
	"os"
	"path/filepath"

	"github.com/fsnotify/fsnotify"
	"k8s.io/klog/v2"
)

// watch tells when something may have changed in a directory. Where the system gives no events it tells
// nothing, and the patrol finds what changed.
type watch struct {
	dir     string
	watcher *fsnotify.Watcher // nil if the system gives none
	// watched is the directory that events come from. dir may be a link that names another one tomorrow.
	watched os.FileInfo
	// told tells that a person knows that the directory cannot be watched.
	told bool
}

func newWatch(ctx context.Context, dir string) *watch {
	w := &watch{dir: dir}
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		klog.FromContext(ctx).Error(err, "The folder of manifests cannot be watched, so changes take effect seconds later; "+
			"raise the sysctls fs.inotify.max_user_instances and max_user_watches", "folder", dir, "period", patrol)
		return w
	}
	w.watcher = watcher
	// The parent tells when the folder itself is replaced.
	if err := watcher.Add(filepath.Dir(dir)); err != nil {
		klog.FromContext(ctx).V(2).Info("The folder above the manifests cannot be watched", "reason", err)
	}
	return w
}

func (w *watch) close() {
	if w.watcher != nil {
		w.watcher.Close()
	}
}

func (w *watch) events() <-chan fsnotify.Event {
	if w.watcher == nil {
		return nil
	}
	return w.watcher.Events
}

func (w *watch) errors() <-chan error {
	if w.watcher == nil {
		return nil
	}
	return w.watcher.Errors
}

// concerns tells whether an event is about the folder or something in it.
func (w *watch) concerns(event fsnotify.Event) bool {
	if event.Name == w.dir && event.Op&(fsnotify.Remove|fsnotify.Rename|fsnotify.Create) != 0 {
		w.watched = nil
	}
	return event.Name == w.dir || filepath.Dir(event.Name) == w.dir
}

// follow makes events come from the directory that has the name now. It is false if there is none at the
// moment, or none that can be watched; where the system gives no events at all, there is nothing to wait for.
func (w *watch) follow(ctx context.Context) bool {
	if w.watcher == nil {
		return true
	}
	now, err := os.Stat(w.dir)
	if err != nil {
		w.watched = nil
		return false
	}
	if w.watched != nil && os.SameFile(now, w.watched) {
		return true
	}
	_ = w.watcher.Remove(w.dir) // a folder that had the name; this fails if there is none
	if err := w.watcher.Add(w.dir); err != nil {
		if !w.told {
			klog.FromContext(ctx).Error(err, "The folder of manifests cannot be watched, so changes take a moment longer", "folder", w.dir)
		}
		w.told = true
		return false
	}
	w.watched, w.told = now, false
	return true
}
