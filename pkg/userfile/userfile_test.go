package userfile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// TestRead reads what a name may lead to. Nothing waits: a test that does runs into the limit of all tests.
func TestRead(t *testing.T) {
	directory := t.TempDir()
	at := func(name string) string { return filepath.Join(directory, name) }
	read, write, err := os.Pipe()
	must(t, err)
	defer read.Close()
	_, err = write.WriteString("piped")
	must(t, err, write.Close(),
		os.WriteFile(at("file"), []byte("text"), 0o600), os.WriteFile(at("empty"), nil, 0o600), os.WriteFile(at("large"), nil, 0o600),
		os.Truncate(at("large"), 300<<30), os.Symlink("file", at("link")), os.Symlink("loop", at("loop")),
		syscall.Mkfifo(at("fifo"), 0o600))
	for name, want := range map[string]string{
		at("file"):                           "text",
		at("empty"):                          "",
		at("link"):                           "text",
		fmt.Sprintf("/dev/fd/%d", read.Fd()): "piped",
		at("missing"):                        "error: no such file",
		at("loop"):                           "error: too many levels of symbolic links",
		at("large"):                          "error: larger than 1 MiB; is it the right file?",
		at("fifo"):                           "error: is a pipe that nothing was written to; start the writer first",
		directory:                            "error: is a directory; want a file",
		"/dev/zero":                          "error: is not a regular file but a device (Dcrw-rw-rw-)",
	} {
		data, err := Read(name, 1<<20)
		got := string(data)
		if err != nil {
			got = "error: " + err.Error()
			if !strings.Contains(got, name) {
				t.Errorf("%s: the error does not name it: %v", name, err)
			}
			if _, wanted, _ := strings.Cut(want, "error: "); strings.Contains(got, wanted) {
				got = want
			}
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
}

// TestSlowPipe reads a pipe whose writer stops in the middle.
func TestSlowPipe(t *testing.T) {
	read, write, err := os.Pipe()
	must(t, err)
	defer read.Close()
	defer write.Close()
	_, err = write.WriteString("half")
	must(t, err)
	if _, err := readPipe(fmt.Sprintf("/dev/fd/%d", read.Fd()), 100, 10*time.Millisecond); err == nil || !strings.Contains(err.Error(), "nothing was written to for 10ms") {
		t.Errorf("got %v", err)
	}
}

// TestFilesRefusesPipes checks that a file that is read again and again may not be a pipe, also if it was none a moment ago.
func TestFilesRefusesPipes(t *testing.T) {
	directory := t.TempDir()
	name, fifo, file := filepath.Join(directory, "x"), filepath.Join(directory, "fifo"), filepath.Join(directory, "file")
	must(t, os.WriteFile(file, []byte("text"), 0o600), syscall.Mkfifo(fifo, 0o600), os.Link(file, name))
	end := make(chan struct{})
	swapped := make(chan error, 1)
	go func() {
		for {
			for _, from := range []string{fifo, file} {
				next := name + ".next"
				if err := errors.Join(os.Link(from, next), os.Rename(next, name)); err != nil {
					swapped <- err
					return
				}
			}
			select {
			case <-end:
				swapped <- nil
				return
			default:
			}
		}
	}()
	files := NewFiles(100)
	for range 5000 {
		content, err := files.Read(name, Version{})
		_, special := errors.AsType[*NotRegularError](err)
		if !special && (err != nil || string(content.Data) != "text") {
			t.Errorf("got %q, %v", content.Data, err)
			break
		}
	}
	close(end)
	must(t, <-swapped)
}

// TestVersions reads a file again only if it has changed.
func TestVersions(t *testing.T) {
	name := filepath.Join(t.TempDir(), "x")
	must(t, os.WriteFile(name, []byte("text"), 0o600))
	files := NewFiles(100)
	first, err := files.Read(name, Version{})
	must(t, err)
	if _, err := files.Read(name, first.Version); !errors.Is(err, ErrUnchanged) {
		t.Errorf("the same version: %v", err)
	}
	must(t, os.WriteFile(name, []byte("other"), 0o600))
	if second, err := files.Read(name, first.Version); err != nil || string(second.Data) != "other" {
		t.Errorf("another version: %q, %v", second.Data, err)
	}
}

// TestOverwrite writes into a pipe that is read, and into one that nobody reads.
func TestOverwrite(t *testing.T) {
	read, write, err := os.Pipe()
	must(t, err)
	defer read.Close()
	must(t, Overwrite(fmt.Sprintf("/dev/fd/%d", write.Fd()), []byte("text")), write.Close())
	got := make([]byte, 10)
	if n, err := read.Read(got); string(got[:n]) != "text" {
		t.Errorf("read %q, %v", got[:n], err)
	}
	must(t, Overwrite(os.DevNull, []byte("text")))
	fifo := filepath.Join(t.TempDir(), "fifo")
	must(t, syscall.Mkfifo(fifo, 0o600))
	if err := Overwrite(fifo, nil); err == nil || !strings.Contains(err.Error(), "is a pipe that no program reads") {
		t.Errorf("a pipe without a reader: %v", err)
	}
}
