package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
)

// stamp is the format of the time in a backup's name: kube-proxy-20061231-150405.log is a backup of kube-proxy.log.
const stamp = "20060102-150405"

// logOptions are the flags about the log file, those of kube-log-runner.
type logOptions struct {
	path  string
	size  int64         // at which the file is rotated; 0 means never
	age   time.Duration // at which a backup is removed; 0 means never
	flush time.Duration // how often the file is flushed to disk; 0 means never
}

func (o *logOptions) register(flags *flag.FlagSet) {
	flags.StringVar(&o.path, "log-file", "", "`file` to append the command's output to")
	flags.Func("log-file-size", "`size`, such as 10M, at which the log file is renamed to NAME-YYYYMMDD-HHMMSS.EXT and a new one begun; 0 means never (default 0)",
		func(text string) error {
			size, err := resource.ParseQuantity(text)
			if err != nil || size.Sign() < 0 {
				return errors.New("must be a size such as 10M or 512Ki, or 0 for no rotation")
			}
			o.size = size.Value()
			return nil
		})
	flags.Func("log-file-age", "`age`, such as 168h, at which a renamed log file is removed, with --log-file-size; 0 means never (default 0)",
		duration(&o.age, "must be a duration such as 168h, or 0 to keep all files"))
	flags.Func("flush-interval", "`interval`, such as 5s, at which the log file is flushed to disk; 0 leaves it to the kernel (default 0)",
		duration(&o.flush, "must be a duration such as 5s, or 0 to leave it to the kernel"))
}

// duration returns the parser of a flag that must not be negative.
func duration(into *time.Duration, usage string) func(string) error {
	return func(text string) error {
		d, err := time.ParseDuration(text)
		if err != nil || d < 0 {
			return errors.New(usage)
		}
		*into = d
		return nil
	}
}

// logFile appends to a file and rotates it. Writing never fails: the command must not end because a disk is full.
type logFile struct {
	logOptions
	report io.Writer // gets errors
	now    func() time.Time
	sync   func(*os.File) error

	mu       sync.Mutex
	file     *os.File
	reported bool // the last rotation failed, and that was reported
}

// openLog opens the file and removes backups that are too old.
func openLog(o logOptions, report io.Writer, now func() time.Time) (*logFile, error) {
	file, err := appendTo(o.path)
	if err != nil {
		return nil, fmt.Errorf("cannot write the log: %w", err)
	}
	l := &logFile{logOptions: o, report: report, now: now, sync: (*os.File).Sync, file: file}
	l.prune()
	return l, nil
}

func appendTo(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
}

// output returns what the command writes to: the file itself if it is never rotated, and the log otherwise.
func (l *logFile) output() io.Writer {
	if l.size == 0 {
		return l.file
	}
	return l
}

// Write appends to the file, and rotates it after the last complete line if it is large enough by then.
func (l *logFile) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	end := bytes.LastIndexByte(p, '\n') + 1
	_, _ = l.file.Write(p[:end])
	if end > 0 && l.full() {
		err := l.rotate()
		if err != nil && !l.reported {
			fmt.Fprintln(l.report, "go-runner: cannot rotate the log, and go on with the same file; if it is a mount, mount its folder, not the file:", err)
		}
		l.reported = err != nil
	}
	_, _ = l.file.Write(p[end:])
	return len(p), nil
}

// full asks the kernel, because another program may truncate the file.
func (l *logFile) full() bool {
	info, err := l.file.Stat()
	return err == nil && info.Size() >= l.size
}

// rotate renames the file and opens a new one. Names have seconds: a second rotation in the same one waits for the next write,
// because it would overwrite a backup.
func (l *logFile) rotate() error {
	name, ext := l.parts()
	backup := name + l.now().Format(stamp) + ext
	if _, err := os.Lstat(backup); err == nil {
		return nil
	}
	if err := os.Rename(l.path, backup); err != nil && !errors.Is(err, fs.ErrNotExist) { // somebody may have removed it
		return err
	}
	file, err := appendTo(l.path)
	if err != nil {
		return errors.Join(err, os.Rename(backup, l.path))
	}
	if l.flush > 0 {
		_ = l.sync(l.file)
	}
	_ = l.file.Close()
	l.file = file
	l.prune()
	return nil
}

// parts returns what a backup's path begins and ends with.
func (l *logFile) parts() (name, ext string) {
	ext = filepath.Ext(l.path)
	return strings.TrimSuffix(l.path, ext) + "-", ext
}

// prune removes backups that are too old by the time in their name.
func (l *logFile) prune() {
	if l.size == 0 || l.age == 0 {
		return
	}
	dir := filepath.Dir(l.path)
	files, err := os.ReadDir(dir)
	name, ext := l.parts()
	for _, file := range files {
		text, isBackup := strings.CutPrefix(file.Name(), filepath.Base(name))
		text, hasExt := strings.CutSuffix(text, ext)
		begun, parseErr := time.ParseInLocation(stamp, text, time.Local)
		if isBackup && hasExt && parseErr == nil && l.now().Sub(begun) > l.age {
			err = errors.Join(err, os.Remove(filepath.Join(dir, file.Name())))
		}
	}
	if err != nil {
		fmt.Fprintln(l.report, "go-runner: cannot remove old logs:", err)
	}
}

// flushing flushes the file to disk at each interval until stop is called.
func (l *logFile) flushing() (stop func()) {
	if l.flush == 0 {
		return func() {}
	}
	ended, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		ticker := time.NewTicker(l.flush)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				l.mu.Lock()
				file := l.file
				l.mu.Unlock()
				_ = l.sync(file) // without the lock, because a slow disk must not stop the command; it may be rotated meanwhile
			case <-done:
				return
			}
		}
	}()
	return func() {
		close(done)
		<-ended
		_ = l.sync(l.file)
	}
}

// Close closes the file.
func (l *logFile) Close() { _ = l.file.Close() }
