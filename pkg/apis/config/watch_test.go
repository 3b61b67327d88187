package config

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// followed is a watched file. A content that begins with "invalid" is invalid, and "same" is equivalent to the
// effective configuration.
type followed struct {
	*testing.T
	path    string
	file    *Watch
	changes chan Change
	result  chan error
	cancel  context.CancelFunc
}

func differs(data []byte) (bool, error) {
	if len(data) == 0 || strings.HasPrefix(string(data), "invalid") {
		return false, errors.New(string(data))
	}
	return !strings.HasPrefix(string(data), "same"), nil
}

func follow(t *testing.T, path string) *followed {
	t.Helper()
	// The limit is for a test that hangs; a test that passes never reaches it.
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	f := &followed{T: t, path: path, changes: make(chan Change, 10), result: make(chan error, 1), cancel: cancel}
	f.file = NewWatch(path, differs)
	f.file.period = 10 * time.Millisecond
	go func() { f.result <- f.file.Run(ctx, func(c Change) { f.changes <- c }) }()
	return f
}

// expect waits for a report.
func (f *followed) expect(differs bool, words string) {
	f.Helper()
	select {
	case c := <-f.changes:
		if c.Differs != differs || (c.Err == nil) != (words == "") || c.Err != nil && !strings.Contains(c.Err.Error(), words) {
			f.Errorf("reported is %+v, want %t, %q", c, differs, words)
		}
		if invalid := f.file.Invalid(); (len(invalid) > 0) != (words != "") {
			f.Errorf("invalid is %q, want %q", invalid, words)
		}
	case err := <-f.result:
		f.Fatalf("the watch ended with %v", err)
	}
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, path, content string) {
	t.Helper()
	must(t, os.WriteFile(path, []byte(content), 0o600))
}

// replace replaces a file atomically.
func (f *followed) replace(content string) {
	f.Helper()
	write(f.T, f.path+".new", content)
	must(f.T, os.Rename(f.path+".new", f.path))
}

func plain(t *testing.T, directory string) string {
	path := filepath.Join(directory, "config.conf")
	write(t, path, "same")
	return path
}

// mountConfigMap creates the files of a mounted ConfigMap: config.conf -> ..data/config.conf, ..data -> ..1.
func mountConfigMap(t *testing.T, directory string) string {
	must(t, os.Mkdir(filepath.Join(directory, "..1"), 0o700))
	write(t, filepath.Join(directory, "..1", "config.conf"), "same")
	must(t, os.Symlink("..1", filepath.Join(directory, "..data")),
		os.Symlink(filepath.Join("..data", "config.conf"), filepath.Join(directory, "config.conf")))
	return filepath.Join(directory, "config.conf")
}

// swap replaces the content as kubelet does.
func swap(t *testing.T, directory, old, next, content string) {
	t.Helper()
	must(t, os.Mkdir(filepath.Join(directory, next), 0o700))
	write(t, filepath.Join(directory, next, "config.conf"), content)
	must(t, os.Symlink(next, filepath.Join(directory, "..data_tmp")),
		os.Rename(filepath.Join(directory, "..data_tmp"), filepath.Join(directory, "..data")),
		os.RemoveAll(filepath.Join(directory, old)))
}

// TestInPlace checks that each way to change the file itself ends the watch with an error, which becomes exit code 1.
func TestInPlace(t *testing.T) {
	for name, test := range map[string]struct {
		layout func(*testing.T, string) string
		change func(t *testing.T, path string)
	}{
		"written":          {plain, func(t *testing.T, path string) { write(t, path, "other") }},
		"renamed over":     {plain, func(t *testing.T, path string) { (&followed{T: t, path: path}).replace("other") }},
		"removed, written": {plain, func(t *testing.T, path string) { must(t, os.Remove(path)); write(t, path, "other") }},
		"behind a link": {func(t *testing.T, directory string) string {
			must(t, os.Mkdir(filepath.Join(directory, "real"), 0o700))
			plain(t, filepath.Join(directory, "real"))
			must(t, os.Symlink(filepath.Join("real", "config.conf"), filepath.Join(directory, "config.conf")))
			return filepath.Join(directory, "config.conf")
		}, func(t *testing.T, path string) { write(t, path, "other") }},
		"a file in place of a link": {mountConfigMap, func(t *testing.T, path string) { (&followed{T: t, path: path}).replace("other") }},
	} {
		t.Run(name, func(t *testing.T) {
			f := follow(t, test.layout(t, t.TempDir()))
			test.change(t, f.path)
			if err := <-f.result; !errors.Is(err, ErrChanged) {
				t.Errorf("the watch ended with %v, want ErrChanged", err)
			}
		})
	}
}

// TestConfigMap checks that a swap of a ConfigMap is reported and does not end the watch, whichever of its links the
// path contains, and that a change in place still ends it afterwards.
func TestConfigMap(t *testing.T) {
	for _, name := range []string{"config.conf", "..data/config.conf"} {
		t.Run(name, func(t *testing.T) {
			directory := t.TempDir()
			mountConfigMap(t, directory)
			f := follow(t, filepath.Join(directory, name))
			swap(t, directory, "..1", "..2", "other")
			f.expect(true, "")
			swap(t, directory, "..2", "..3", "invalid")
			f.expect(true, "invalid")
			swap(t, directory, "..3", "..4", "same again")
			f.expect(false, "")
			write(t, filepath.Join(directory, "..4", "config.conf"), "other")
			if err := <-f.result; !errors.Is(err, ErrChanged) {
				t.Errorf("the watch ended with %v, want ErrChanged", err)
			}
		})
	}
}

// TestContinues checks that neither an invalid, a huge nor an equivalent file ends the watch, and that the end of ctx does.
func TestContinues(t *testing.T) {
	f := follow(t, plain(t, t.TempDir()))
	f.replace("invalid: one")
	f.expect(true, "invalid: one")
	f.replace("same but longer")
	f.expect(false, "")
	f.replace("same" + strings.Repeat(" ", MaxSize))
	f.expect(true, "larger than 1 MiB")
	must(t, os.Remove(f.path))
	f.expect(true, "no such file")
	f.replace("invalid: two")
	f.expect(true, "invalid: two")
	f.cancel()
	if err := <-f.result; err != nil {
		t.Errorf("the watch ended with %v", err)
	}
}

// TestChangedBefore checks that a change between NewWatch and Run is found.
func TestChangedBefore(t *testing.T) {
	path := plain(t, t.TempDir())
	file := NewWatch(path, differs)
	file.period = 10 * time.Millisecond
	write(t, path, "other")
	if err := file.Run(t.Context(), nil); !errors.Is(err, ErrChanged) {
		t.Errorf("the watch ended with %v, want ErrChanged", err)
	}
}

// TestPipe checks that a configuration that was read from a pipe is not read again, and that a pipe in the place of a file is
// invalid.
func TestPipe(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	must(t, syscall.Mkfifo(pipe, 0o600))
	never := follow(t, pipe)
	must(t, os.Remove(pipe))
	write(t, pipe, "other")

	f := follow(t, plain(t, t.TempDir()))
	must(t, syscall.Mkfifo(f.path+".new", 0o600), os.Rename(f.path+".new", f.path))
	f.expect(true, "is not a regular file but a pipe")
	f.replace("same again")
	f.expect(false, "")
	never.cancel()
	if err := <-never.result; err != nil || len(never.changes) > 0 {
		t.Errorf("the watch of a pipe ended with %v and %d changes", err, len(never.changes))
	}
}
