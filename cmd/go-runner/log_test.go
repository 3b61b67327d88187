package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// TestFlags runs command lines whose flags are those of kube-log-runner.
func TestFlags(t *testing.T) {
	t.Setenv("GO_RUNNER_TEST", "write")
	for _, flags := range [][]string{
		{"--flush-interval=5s", "--log-file-size=10M", "--log-file-age=168h"},
		{"-flush-interval=10s", "-log-file-size=512Ki"},
		{"--log-file-size=1000000", "--log-file-age=0"},
		{"--flush-interval=0", "--log-file-size=0", "--log-file-age=24h"},
	} {
		log := filepath.Join(t.TempDir(), "log")
		var stderr bytes.Buffer
		code, err := run(append(append([]string{"--log-file=" + log}, flags...), os.Args[0]), os.Stdout, &stderr)
		if text, _ := os.ReadFile(log); code != 3 || err != nil || string(text) != "out\nerr\n" {
			t.Errorf("run with %q = %d, %v and wrote %q: %s", flags, code, err, text, &stderr)
		}
	}
	for _, c := range []struct{ flag, want string }{
		{"--log-file-size=10MB", "must be a size such as 10M or 512Ki, or 0 for no rotation"},
		{"--log-file-size=-1", "must be a size such as 10M or 512Ki, or 0 for no rotation"},
		{"--log-file-age=7d", "must be a duration such as 168h, or 0 to keep all files"},
		{"--log-file-age=-1h", "must be a duration such as 168h, or 0 to keep all files"},
		{"--flush-interval=5", "must be a duration such as 5s, or 0 to leave it to the kernel"},
		{"--flush-interval=-5s", "must be a duration such as 5s, or 0 to leave it to the kernel"},
	} {
		var stderr bytes.Buffer
		code, _ := run([]string{c.flag, os.Args[0]}, os.Stdout, &stderr)
		if code != exitUsage || !strings.Contains(stderr.String(), c.want) {
			t.Errorf("run(%s) = %d, want %d and %q:\n%s", c.flag, code, exitUsage, c.want, &stderr)
		}
	}
}

// TestRotateCommand runs a command that writes more than the size.
func TestRotateCommand(t *testing.T) {
	t.Setenv("GO_RUNNER_TEST", "much")
	log := filepath.Join(t.TempDir(), "kube-proxy.log")
	var stdout bytes.Buffer
	code, err := run([]string{"--log-file=" + log, "--log-file-size=1k", "--also-stdout", os.Args[0]}, &stdout, os.Stderr)
	if code != 0 || err != nil {
		t.Fatalf("run = %d, %v", code, err)
	}
	backups, all := read(t, log)
	if len(backups) == 0 {
		t.Error("the log was not rotated")
	}
	if all != stdout.String() || strings.Count(all, "\n") != lines {
		t.Errorf("the files hold %d bytes, and standard output got %d", len(all), stdout.Len())
	}
}

// TestRotate writes to a log and looks at its files.
func TestRotate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kube-proxy.log")
	now := time.Date(2026, 11, 23, 15, 4, 5, 0, time.Local)
	l := open(t, logOptions{path: path, size: 10}, &now)
	write := func(text string, wantBackups ...string) {
		t.Helper()
		if n, err := l.Write([]byte(text)); n != len(text) || err != nil {
			t.Errorf("Write = %d, %v", n, err)
		}
		if backups, _ := read(t, path); !slices.Equal(backups, wantBackups) {
			t.Errorf("after %q there are %q, want %q", text, backups, wantBackups)
		}
	}
	const first, second = "kube-proxy-20261123-150405.log", "kube-proxy-20261123-150406.log"
	write("1234\n")
	write("a line that is not")                 // no line is split
	write(" split\nnext", first)                // and the new file begins with a line
	write(" line, in the same second\n", first) // a backup is not overwritten
	now = now.Add(time.Second)
	write("x\n", first, second)
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	now = now.Add(time.Second)
	write("12345678\n", first, second) // the size is the file's, which another program may have truncated
	for name, want := range map[string]string{
		first: "1234\na line that is not split\n", second: "next line, in the same second\nx\n", "kube-proxy.log": "12345678\n",
	} {
		if text, err := os.ReadFile(filepath.Join(filepath.Dir(path), name)); string(text) != want {
			t.Errorf("%s holds %q, want %q (%v)", name, text, want, err)
		}
	}
}

// TestRotateBig starts with a log that is too large already, and that somebody removes.
func TestRotateBig(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(path, []byte("a long line of the last run\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	l := open(t, logOptions{path: path, size: 10}, &now)
	_, _ = l.Write([]byte("1\n"))
	if backups, all := read(t, path); len(backups) != 1 || all != "a long line of the last run\n1\n" {
		t.Errorf("the files are %q and hold %q", backups, all)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	now = now.Add(time.Minute)
	_, _ = l.Write([]byte("the line that is lost\n"))
	_, _ = l.Write([]byte("2\n"))
	if text, err := os.ReadFile(path); string(text) != "2\n" {
		t.Errorf("the log holds %q, want 2 (%v)", text, err)
	}
}

// TestRotateFails makes the rename fail: the log goes on in the same file, and standard error has one line.
func TestRotateFails(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "logs")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "log")
	now := time.Now()
	l := open(t, logOptions{path: path, size: 1}, &now)
	var report bytes.Buffer
	l.report = &report
	l.path = filepath.Join(path, "below a file") // ENOTDIR, for root too
	_, _ = l.Write([]byte("1\n"))
	_, _ = l.Write([]byte("2\n"))
	if text, _ := os.ReadFile(path); string(text) != "1\n2\n" {
		t.Errorf("the log holds %q, want both lines", text)
	}
	if text := report.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "mount its folder, not the file") {
		t.Errorf("the report is %q, want one line that says what to do", text)
	}
	l.path = path
	_, _ = l.Write([]byte("3\n"))
	if backups, _ := read(t, path); len(backups) != 1 {
		t.Errorf("the log is not rotated afterwards: %q", backups)
	}
}

// TestAge puts files beside a log: only its own backups that are too old are removed, at the start and with each rotation.
func TestAge(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "kube-proxy.log")
	now := time.Date(2026, 11, 23, 15, 0, 0, 0, time.Local)
	const old, young = "kube-proxy-20261122-145959.log", "kube-proxy-20261122-150001.log"
	others := []string{"kube-proxy-20201122-145959.txt", "kube-20201122-145959.log", "kube-proxy-2020.log", "kube-proxy-20201122-145959.log.gz"}
	for _, name := range append([]string{old, young}, others...) {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	exist := func(names ...string) (found []string) {
		for _, name := range names {
			if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
				found = append(found, name)
			}
		}
		return found
	}
	open(t, logOptions{path: path, age: 24 * time.Hour}, &now)
	if found := exist(old, young); len(found) != 2 {
		t.Errorf("without rotation there are %q, want both backups", found)
	}
	l := open(t, logOptions{path: path, size: 1, age: 24 * time.Hour}, &now)
	if found := exist(old, young); !slices.Equal(found, []string{young}) {
		t.Errorf("after the start there are %q, want %q", found, young)
	}
	now = now.Add(2 * time.Second)
	_, _ = l.Write([]byte("1\n"))
	if found := exist(old, young, "kube-proxy-20261123-150002.log"); !slices.Equal(found, []string{"kube-proxy-20261123-150002.log"}) {
		t.Errorf("after a rotation there are %q, want only the new backup", found)
	}
	if found := exist(others...); !slices.Equal(found, others) {
		t.Errorf("of the other files there are %q, want %q", found, others)
	}
}

// TestFlush counts how often the log is flushed.
func TestFlush(t *testing.T) {
	now := time.Now()
	for _, interval := range []time.Duration{0, time.Millisecond} {
		l := open(t, logOptions{path: filepath.Join(t.TempDir(), "log"), flush: interval}, &now)
		var count atomic.Int32
		enough := make(chan struct{})
		l.sync = func(file *os.File) error {
			if count.Add(1) == 3 {
				close(enough)
			}
			return file.Sync()
		}
		stop := l.flushing()
		if interval > 0 {
			select {
			case <-enough:
			case <-time.After(time.Minute):
				t.Errorf("%d flushes in a minute", count.Load())
			}
		}
		stop()
		after := count.Load()
		time.Sleep(10 * time.Millisecond)
		if got := count.Load(); got != after || (interval == 0) != (got == 0) {
			t.Errorf("with interval %v there were %d flushes, and %d when stopped", interval, got, after)
		}
	}
}

// open opens a log with a clock.
func open(t *testing.T, o logOptions, now *time.Time) *logFile {
	t.Helper()
	l, err := openLog(o, os.Stderr, func() time.Time { return *now })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l
}

// read returns the names of a log's backups, and what these and the log hold.
func read(t *testing.T, path string) (backups []string, all string) {
	t.Helper()
	ext := filepath.Ext(path)
	files, err := filepath.Glob(strings.TrimSuffix(path, ext) + "-*" + ext)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range append(files, path) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all += string(text)
	}
	for _, file := range files {
		backups = append(backups, filepath.Base(file))
	}
	return backups, all
}

// lines is the number of lines that the command much writes.
const lines = 500

func writeMuch() {
	for i := range lines {
		fmt.Printf("line %d of the command\n", i)
	}
}
