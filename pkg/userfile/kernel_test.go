package userfile

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/seed-11a05479/kube-proxy/test/hungfs"
)

// TestKernelHungFiles reads files that never answer: each is waited for only once, a bounded number of them is left behind, all
// other files are read, and a file that takes the place of such a one is read too.
func TestKernelHungFiles(t *testing.T) {
	directory := t.TempDir()
	hung := filepath.Join(directory, "hung")
	must(t, os.Mkdir(hung, 0o700))
	release := hungfs.Mount(t, hung)
	link := func(i int) string { return filepath.Join(directory, string(rune('a'+i))) }
	for i := range maxLeft + 1 {
		must(t, os.Symlink(filepath.Join(hung, "x"), link(i)))
	}
	good := filepath.Join(directory, "good")
	must(t, os.WriteFile(good, []byte("text"), 0o600))
	before := runtime.NumGoroutine()
	files := NewFiles(100)
	files.wait = 10 * time.Millisecond
	for range 100 {
		for i := range maxLeft - 1 {
			if _, err := files.Read(link(i), Version{}); err == nil || !strings.Contains(err.Error(), link(i)+" does not answer") {
				t.Fatalf("got %v", err)
			}
		}
		if content, err := files.Read(good, Version{}); err != nil || string(content.Data) != "text" {
			t.Fatalf("another file: %q, %v", content.Data, err)
		}
	}
	if now := runtime.NumGoroutine(); now-before > maxLeft {
		t.Errorf("%d goroutines were left behind by %d files", now-before, maxLeft-1)
	}
	must(t, os.Remove(link(0)), os.WriteFile(link(0), []byte("new"), 0o600))
	if content, err := files.Read(link(0), Version{}); err != nil || string(content.Data) != "new" {
		t.Errorf("a file in its place: %q, %v", content.Data, err)
	}
	_, last := files.Read(link(maxLeft-1), Version{})
	if _, err := files.Read(link(maxLeft), Version{}); err == nil || !strings.Contains(err.Error(), "8 other files do not answer") {
		t.Errorf("one more: %v, after %v", err, last)
	}
	release()
	for deadline := time.Now().Add(20 * time.Second); runtime.NumGoroutine() > before; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("goroutines are left after the file system has answered")
		}
	}
	if _, err := files.Read(link(1), Version{}); err == nil || strings.Contains(err.Error(), "does not answer") {
		t.Errorf("the answer that came late: %v", err)
	}
}

// TestKernelWaitingFile reads /proc/kmsg, a regular file that waits for the kernel's next message.
func TestKernelWaitingFile(t *testing.T) {
	switch {
	case os.Geteuid() == 0:
	case os.Getenv("CI") == "true":
		t.Fatal("needs root")
	default:
		t.Skip("needs root")
	}
	if _, err := NewFiles(1<<20).Read("/proc/kmsg", Version{}); err == nil || !strings.Contains(err.Error(), "/proc/kmsg does not answer") {
		t.Errorf("got %v", err)
	}
	if _, err := Read("/proc/kmsg", 1<<20); err == nil || !strings.Contains(err.Error(), "/proc/kmsg does not answer") {
		t.Errorf("once: %v", err)
	}
}
