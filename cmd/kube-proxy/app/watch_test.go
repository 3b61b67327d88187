package app

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const watchedHead = "apiVersion: kubeproxy.config.k8s.io/v1alpha2\nkind: KubeProxyConfiguration\n"

// watched is a configuration file that is being watched.
type watched struct {
	t       *testing.T
	path    string
	cancel  context.CancelFunc
	invalid chan error
	result  chan bool
}

// newWatched lays a file out as layout says, loads it and begins to watch it.
func newWatched(t *testing.T, layout func(directory string) (path string)) *watched {
	t.Helper()
	path := layout(t.TempDir())
	opts, flags := parse(t, "--config="+path, "--hostname-override=n", "-v=2")
	l, err := opts.load(flags)
	if err != nil {
		t.Fatal(err)
	}
	// The limit is for a test that hangs; a test that passes never waits for it.
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	w := &watched{t: t, path: path, cancel: cancel, invalid: make(chan error, 10), result: make(chan bool, 1)}
	watch := opts.runOptions(l, flags).configFile
	watch.settle = 10 * time.Millisecond
	go func() { w.result <- watch.Wait(ctx, func(err error) { w.invalid <- err }) }()
	t.Cleanup(cancel)
	return w
}

// plainFile lays out a file that is just there.
func plainFile(directory string) string {
	path := filepath.Join(directory, "config.conf")
	mustWrite(path, watchedHead+"mode: iptables\n")
	return path
}

// configMap lays out a file as kubelet does: config.conf -> ..data/config.conf, ..data -> ..1.
func configMap(directory string) string {
	must(os.Mkdir(filepath.Join(directory, "..1"), 0o700))
	mustWrite(filepath.Join(directory, "..1", "config.conf"), watchedHead+"mode: iptables\n")
	must(os.Symlink("..1", filepath.Join(directory, "..data")))
	must(os.Symlink(filepath.Join("..data", "config.conf"), filepath.Join(directory, "config.conf")))
	return filepath.Join(directory, "config.conf")
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func mustWrite(path, content string) { must(os.WriteFile(path, []byte(content), 0o600)) }

// replace gives the file a new content in one step, so that nothing half-written can be seen.
func (w *watched) replace(content string) {
	mustWrite(w.path+".new", content)
	must(os.Rename(w.path+".new", w.path))
}

// expectInvalid waits for the report of an invalid file.
func (w *watched) expectInvalid(words string) {
	w.t.Helper()
	select {
	case err := <-w.invalid:
		if !strings.Contains(err.Error(), words) {
			w.t.Errorf("reported is %q, want %q", err, words)
		}
	case changed := <-w.result:
		w.t.Fatalf("the watch ended with %t instead of reporting %q", changed, words)
	}
}

// expectEnd waits for the end of the watch.
func (w *watched) expectEnd(changed bool) {
	w.t.Helper()
	if got := <-w.result; got != changed {
		w.t.Errorf("the watch ended with %t, want %t", got, changed)
	}
	select {
	case err := <-w.invalid:
		w.t.Errorf("reported as invalid: %v", err)
	default:
	}
}

// TestWatchNotices proves that each way to change a file ends the watch.
func TestWatchNotices(t *testing.T) {
	const changed = watchedHead + "mode: nftables\n"
	tests := map[string]struct {
		layout func(string) string
		change func(path string)
	}{
		"write": {plainFile, func(path string) { mustWrite(path, changed) }},
		"rename": {plainFile, func(path string) {
			(&watched{path: path}).replace(changed)
		}},
		"remove and write": {plainFile, func(path string) {
			must(os.Remove(path))
			mustWrite(path, changed)
		}},
		"ConfigMap": {configMap, func(path string) {
			directory := filepath.Dir(path)
			must(os.Mkdir(filepath.Join(directory, "..2"), 0o700))
			mustWrite(filepath.Join(directory, "..2", "config.conf"), changed)
			must(os.Symlink("..2", filepath.Join(directory, "..data_tmp")))
			must(os.Rename(filepath.Join(directory, "..data_tmp"), filepath.Join(directory, "..data")))
			must(os.RemoveAll(filepath.Join(directory, "..1")))
		}},
		"link to another directory": {func(directory string) string {
			must(os.Mkdir(filepath.Join(directory, "real"), 0o700))
			mustWrite(filepath.Join(directory, "real", "config.conf"), watchedHead+"mode: iptables\n")
			must(os.Symlink(filepath.Join("real", "config.conf"), filepath.Join(directory, "config.conf")))
			return filepath.Join(directory, "config.conf")
		}, func(path string) { mustWrite(path, changed) }},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWatched(t, tt.layout)
			tt.change(w.path)
			if got := <-w.result; !got {
				t.Error("the change was not noticed")
			}
		})
	}
}

// TestWatchGoesOn proves that neither an invalid file nor one that means the same ends the watch.
func TestWatchGoesOn(t *testing.T) {
	w := newWatched(t, plainFile)
	w.replace(watchedHead + "mode: userspace\n")
	w.expectInvalid("config.conf:3: mode: Unsupported value")
	w.replace("# the same\n" + watchedHead + "mode: iptables\nsyncPeriod: 30s\nlogging: {verbosity: 1}\n")
	// Whatever the watch makes of the file above, it does so before it reads the one below.
	w.replace(watchedHead + "foo: 1\n")
	w.expectInvalid("config.conf:3: foo: unknown field")
	must(os.Remove(w.path))
	w.expectInvalid("no such file")
	w.replace(watchedHead + "mode: nftables\n")
	w.expectEnd(true)
}

// TestWatchEndsWithContext proves that the watch ends without a change when it is told to.
func TestWatchEndsWithContext(t *testing.T) {
	w := newWatched(t, plainFile)
	w.cancel()
	w.expectEnd(false)
}

// TestSameMeaning proves what counts as a change, without any watching.
func TestSameMeaning(t *testing.T) {
	path := plainFile(t.TempDir())
	opts, flags := parse(t, "--config="+path, "--hostname-override=n", "-v=2")
	l, err := opts.load(flags)
	if err != nil {
		t.Fatal(err)
	}
	watch := opts.runOptions(l, flags).configFile
	for content, want := range map[string]bool{
		watchedHead + "mode: iptables\n":                                         false,
		"# a comment\n" + watchedHead + "{}\n":                                   false, // invalid
		watchedHead + "mode: iptables\nsyncPeriod: 30s\nnodePortAddresses: []\n": false, // defaults
		watchedHead + "mode: iptables\nhostnameOverride: other\n":                false, // the flag wins
		watchedHead + "mode: iptables\nlogging: {flushFrequency: 5000ms}\n":      false,
		watchedHead + "mode: iptables\nsyncPeriod: 31s\n":                        true,
		watchedHead + "mode: iptables\nfeatureGates: {AllAlpha: false}\n":        true,
		watchedHead: true,
	} {
		mustWrite(path, content)
		if got := watch.changed(t.Context(), func(error) {}); got != want {
			t.Errorf("changed is %t, want %t, of:\n%s", got, want, content)
		}
	}
}
