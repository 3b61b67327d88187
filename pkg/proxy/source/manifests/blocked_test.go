package manifests

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/seed-11a05479/kube-proxy/test/hungfs"
)

// link makes a link in the directory to a file elsewhere.
func (b *bench) link(target, name string) {
	b.Helper()
	if err := os.Symlink(target, filepath.Join(b.dir, name)); err != nil {
		b.Fatal(err)
	}
}

// TestFileBecomesPipe lets a file be a pipe and a regular file by turns, as fast as possible: all others are followed.
func TestFileBecomesPipe(t *testing.T) {
	b := run(t, t.TempDir())
	other := t.TempDir()
	fifo, file, name := filepath.Join(other, "fifo"), filepath.Join(other, "file"), filepath.Join(b.dir, "x.yaml")
	if err := errors.Join(syscall.Mkfifo(fifo, 0o600), os.WriteFile(file, []byte("# nothing\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	end, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			select {
			case <-end:
				ended <- nil
				return
			default:
			}
			for _, from := range []string{fifo, file} {
				if err := errors.Join(os.Link(from, name+".next"), os.Rename(name+".next", name)); err != nil {
					ended <- err
					return
				}
			}
		}
	}()
	for i := range 50 {
		b.write("a.yaml", service("a", i))
		b.want(fmt.Sprintf("a=%d", i))
	}
	close(end)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
}

// TestKernelBlockedFiles follows a directory with files that never answer: all others are used, and the log names those.
func TestKernelBlockedFiles(t *testing.T) {
	hung := t.TempDir()
	hungfs.Mount(t, hung)
	b := &bench{T: t, dir: t.TempDir()}
	b.link(filepath.Join(hung, "x"), "network.yaml")
	b.link("/proc/kmsg", "kernel.yaml")
	b.write("a.yaml", service("a", 1))
	b = run(t, b.dir)
	b.want("a=1")
	b.waitLog("Manifest has errors", "network.yaml does not answer; check the file system that it is on")
	b.waitLog("Manifest has errors", "kernel.yaml does not answer: it is a file of the kernel that waits")
	for i := range 20 {
		b.write("a.yaml", service("a", i))
		b.want(fmt.Sprintf("a=%d", i))
	}
	if err := os.Remove(filepath.Join(b.dir, "network.yaml")); err != nil {
		t.Fatal(err)
	}
	b.write("network.yaml", service("z", 3))
	b.want("a=19 z=3")
}
