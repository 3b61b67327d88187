package manifests

import (
	"context"
	"os"
	"path/filepath"

	"github.com/fsnotify/fsnotify"
	"k8s.io/klog/v2"

	"github.com/seed-11a05479/kube-proxy/pkg/logonce"
)

// watch reports when something may have changed in a directory. Without events from the system it reports nothing, and
// changes are found after resyncPeriod.
type watch struct {
	dir     string
	watcher *fsnotify.Watcher // nil if the system has no events
	// watched is the directory that is watched, and target its path: dir may be a link to it.
	watched os.FileInfo
	target  string
	failing logonce.Condition
}

func newWatch(ctx context.Context, dir string) *watch {
	w := &watch{dir: dir, failing: logonce.Condition{Again: logonce.Reminder}}
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		klog.FromContext(ctx).Error(err, "Failed to watch the directory of manifests; reading it periodically",
			"directory", dir, "period", resyncPeriod, "hint", "raise the sysctls fs.inotify.max_user_instances and max_user_watches")
		return w
	}
	w.watcher = watcher
	// Events of the parent report that the directory itself was replaced.
	if err := watcher.Add(filepath.Dir(dir)); err != nil {
		klog.FromContext(ctx).V(2).Info("Failed to watch the parent of the directory of manifests", "reason", err)
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

// concerns reports whether an event is about the directory or a file in it.
func (w *watch) concerns(event fsnotify.Event) bool {
	itself := event.Name == w.dir || event.Name == w.target
	if itself && event.Op&(fsnotify.Remove|fsnotify.Rename|fsnotify.Create) != 0 {
		w.watched = nil
	}
	return itself || filepath.Dir(event.Name) == w.target
}

// follow watches the directory that dir leads to now. It returns false if that should be tried again soon: the directory
// does not exist, or watching it failed.
func (w *watch) follow(ctx context.Context) bool {
	if w.watcher == nil {
		return true
	}
	target, err := filepath.EvalSymlinks(w.dir)
	var now os.FileInfo
	if err == nil {
		now, err = os.Stat(target)
	}
	if err != nil {
		w.watched = nil
		return false
	}
	if w.watched != nil && os.SameFile(now, w.watched) {
		return true
	}
	_ = w.watcher.Remove(w.target) // fails if there is none
	// Under the path of a link, fsnotify would not report that the directory was removed if it watches the link's parent.
	w.target = target
	if err := w.watcher.Add(target); err != nil {
		if w.failing.Changed(err.Error()) {
			klog.FromContext(ctx).Error(err, "Failed to watch the directory of manifests; reading it periodically", "directory", w.dir, "period", settle)
		}
		return false
	}
	if w.failing.Ended() {
		klog.FromContext(ctx).Info("Watching the directory of manifests again", "directory", w.dir)
	}
	w.watched = now
	return true
}
