package app

import (
	"context"
	"crypto/sha256"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/klog/v2"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/config"
)

const (
	// settleTime is how long after a sign of change the file is read: an editor writes in several steps. Further signs
	// do not put it off, since a busy directory gives them without end.
	settleTime = 500 * time.Millisecond
	// pollTime is how often the file is looked at without being told, for file systems that tell nothing.
	pollTime = time.Minute
)

// configWatch notices that the configuration file has a new meaning.
type configWatch struct {
	path    string
	running *config.KubeProxyConfiguration
	read    func() (*loaded, error)
	settle  time.Duration // settleTime, but in tests
}

// Wait blocks until the file holds a valid configuration that differs from the running one, and then returns true: the
// process should finish its last sync, leave all rules, and end with exit code 0, to be started again with the new
// configuration. It returns false when ctx ends. A file that became invalid is logged and given to invalid, once for
// each content, and the running configuration stays; a file that means the same does nothing.
func (w *configWatch) Wait(ctx context.Context, invalid func(error)) bool {
	logger := klog.FromContext(ctx)
	events, errs, stop := w.subscribe(logger)
	defer stop()

	seen := w.digest()
	poll := time.NewTicker(pollTime)
	defer poll.Stop()
	look := time.NewTimer(0) // the file may have changed before the watch began
	defer look.Stop()
	first, pending := true, true
	soon := func() {
		if !pending {
			look.Reset(w.settle)
			pending = true
		}
	}
	for {
		select {
		case <-ctx.Done():
			return false
		case <-events:
			soon()
		case err := <-errs:
			logger.Error(err, "Watching the configuration file failed for a moment; looking at it again", "file", w.path)
			soon()
		case <-poll.C:
			soon()
		case <-look.C:
			pending = false
			digest := w.digest()
			if digest == seen && !first {
				continue
			}
			first, seen = false, digest
			if w.changed(ctx, invalid) {
				return true
			}
		}
	}
}

// changed reads the file and tells whether its meaning has changed.
func (w *configWatch) changed(ctx context.Context, invalid func(error)) bool {
	logger := klog.FromContext(ctx)
	l, err := w.read()
	if err != nil {
		logger.Error(err, "The changed configuration file is invalid; going on with the configuration that is running", "file", w.path)
		invalid(err)
		return false
	}
	if equality.Semantic.DeepEqual(w.running, l.cfg) {
		return false
	}
	logger.Info("The configuration file has changed; ending, to be started again with it", "file", w.path)
	return true
}

// digest tells one content of the file from another. A file that cannot be read has a digest of its own.
func (w *configWatch) digest() [sha256.Size]byte {
	data, err := os.ReadFile(w.path)
	if err != nil {
		data = []byte("unreadable: " + err.Error())
	}
	return sha256.Sum256(data)
}

// subscribe watches the directory of the file, since a ConfigMap is exchanged by renaming a symbolic link in it, and
// the directory that the file's own symbolic link leads to. Where the kernel refuses, polling remains.
func (w *configWatch) subscribe(logger klog.Logger) (<-chan fsnotify.Event, <-chan error, func()) {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		logger.Error(err, "Cannot watch the configuration file; looking at it from time to time", "file", w.path, "period", pollTime)
		return nil, nil, func() {}
	}
	directories := []string{filepath.Dir(w.path)}
	if target, err := filepath.EvalSymlinks(w.path); err == nil && filepath.Dir(target) != directories[0] {
		directories = append(directories, filepath.Dir(target))
	}
	for _, directory := range directories {
		if err := watcher.Add(directory); err != nil {
			logger.Error(err, "Cannot watch the directory of the configuration file; looking at it from time to time", "directory", directory, "period", pollTime)
		}
	}
	return watcher.Events, watcher.Errors, func() { watcher.Close() }
}
