// Package userfile reads the files that users name, such as manifests and configuration files. Whatever such a name leads to, reading
// it takes a bounded time and a bounded memory.
//
//   - A file must be regular: it is asked before it is opened, because opening a device may have effects, and again afterwards,
//     because another file may have taken its place. It is opened without blocking.
//   - A file on a network file system whose server is gone blocks the thread that reads it, and nothing can interrupt that. So
//     another goroutine reads it, which is left behind if the file does not answer. Its result is used when it comes.
//   - Some regular files wait, such as /proc/kmsg. They have a read deadline.
//
// [Split] reads the documents of a file, with the lines of their fields.
package userfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"syscall"
	"time"
)

const (
	// fileWait is how long Read waits for a regular file: network file systems may be slow.
	fileWait = 10 * time.Second
	// pipeWait is how long Read waits for the next bytes of a pipe: the program that writes it may have to ask an API server.
	pipeWait = 30 * time.Second
	// filesWait is how long Files waits for one of many files. A slower one is read anyway, and used the next time.
	filesWait = time.Second
	// kernelWait is how long a regular file that can wait, which is one of the kernel's, may keep its reader waiting.
	kernelWait = 100 * time.Millisecond
	// maxLeft is the maximum number of reads that are left behind.
	maxLeft = 8
)

// ErrNoAnswer reports that a file has not answered yet: nothing is known about its content.
var ErrNoAnswer = errors.New("does not answer; check the file system that it is on")

// ErrUnchanged reports that a file still has the version that its reader knows.
var ErrUnchanged = errors.New("the file has not changed")

// NotRegularError reports that a name leads to a pipe, a device, a socket or a directory.
type NotRegularError struct {
	Name string
	Mode fs.FileMode
}

func (e *NotRegularError) Error() string {
	if e.Mode.IsDir() {
		return e.Name + ": is a directory; want a file"
	}
	return fmt.Sprintf("%s is not a regular file but %s (%s)", e.Name, kindOf(e.Mode), e.Mode)
}

func kindOf(mode fs.FileMode) string {
	switch {
	case mode&fs.ModeNamedPipe != 0:
		return "a pipe"
	case mode&fs.ModeSocket != 0:
		return "a socket"
	}
	return "a device"
}

// Version changes when a file does. The zero value is no file's.
type Version struct {
	device, inode     uint64
	size              int64
	modified, changed int64 // nanoseconds
}

// Content is what was read of a file.
type Content struct {
	Data    []byte
	Version Version
}

// Read reads a file once: a regular file, or a pipe, such as a shell's <(command). limit is its maximum size in bytes. The
// errors name the file.
func Read(name string, limit int64) ([]byte, error) {
	content, err := (&Files{limit: limit, wait: fileWait}).Read(name, Version{})
	if other, ok := errors.AsType[*NotRegularError](err); ok && other.Mode&fs.ModeNamedPipe != 0 {
		return readPipe(name, limit, pipeWait)
	}
	return content.Data, err
}

// readPipe reads a pipe to its end, and waits this long for each part. Opening it does not wait for a writer.
func readPipe(name string, limit int64, wait time.Duration) ([]byte, error) {
	f, err := open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := readAll(patient{f, wait}, name, limit, 0)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, fmt.Errorf("%s is a pipe that nothing was written to for %s; write the content to a file first", name, wait)
	case err == nil && len(data) == 0:
		return nil, fmt.Errorf("%s is a pipe that nothing was written to; start the writer first, or write the content to a file", name)
	}
	return data, err
}

// patient reads a pipe or a file of the kernel, and waits this long for each part.
type patient struct {
	*os.File
	wait time.Duration
}

// Read implements io.Reader.
func (p patient) Read(to []byte) (int, error) {
	// It fails for files on disks, which need no deadline.
	_ = p.SetReadDeadline(time.Now().Add(p.wait))
	return p.File.Read(to)
}

// open opens a file without waiting: for a pipe's writer, for instance.
func open(name string) (*os.File, error) { return os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0) }

// ReadArgument is Read for a name on a command line: "-" is standard input, which it reads to its end, however long that takes. shown is
// the name for messages.
func ReadArgument(name string, stdin io.Reader, limit int64) (shown string, data []byte, err error) {
	if name == "-" {
		name = "<stdin>"
		data, err = readAll(stdin, name, limit, 0)
	} else {
		data, err = Read(name, limit)
	}
	return name, data, err
}

// readAll reads everything, up to the limit; the size is an estimate.
func readAll(r io.Reader, name string, limit, size int64) ([]byte, error) {
	data := bytes.NewBuffer(make([]byte, 0, size+bytes.MinRead))
	n, err := data.ReadFrom(io.LimitReader(r, limit+1))
	switch {
	case err != nil:
		return nil, err
	case n > limit:
		return nil, TooLarge(name, limit)
	}
	return data.Bytes(), nil
}

// TooLarge returns the error for a file of more than limit bytes, which is a whole number of MiB.
func TooLarge(name string, limit int64) error {
	return fmt.Errorf("%s: larger than %d MiB; is it the right file?", name, limit>>20)
}

// Files reads regular files again and again. It must not be used concurrently.
type Files struct {
	// limit is the maximum size of a file in bytes, wait is how long Read waits for one.
	limit int64
	wait  time.Duration
	// left are the reads that have not ended: of each file at most one.
	left []*reading
}

// NewFiles returns a reader of files of at most limit bytes.
func NewFiles(limit int64) *Files { return &Files{limit: limit, wait: filesWait} }

// NewFile returns a reader of a single file of at most limit bytes, which it waits for as long as Read does.
func NewFile(limit int64) *Files { return &Files{limit: limit, wait: fileWait} }

// reading is the attempt to read a file.
type reading struct {
	name string
	// entry is the version of the directory's entry when the attempt began, which may be a link.
	entry Version
	done  chan struct{} // closed when content and err are set

	content Content
	err     error
}

// Read reads a file, unless it has the version that is known: then the error is ErrUnchanged. The errors name the file. Read
// waits only once for a file that does not answer: until it does, Read fails at once.
func (f *Files) Read(name string, known Version) (Content, error) {
	wait := time.Duration(0)
	now := f.pending(name)
	if now == nil {
		if len(f.left) >= maxLeft {
			return Content{}, fmt.Errorf("%s is not read: %d other files do not answer; check their file systems", name, maxLeft)
		}
		wait, now = f.wait, begin(name, known, f.limit)
		f.left = append(f.left, now)
	}
	if !now.ended(wait) {
		return Content{}, fmt.Errorf("%s %w", name, ErrNoAnswer)
	}
	f.left = slices.DeleteFunc(f.left, func(r *reading) bool { return r == now })
	return now.content, now.err
}

// pending returns the read of this file that has not ended, if the directory's entry is still the same, and forgets others
// that have ended.
func (f *Files) pending(name string) (same *reading) {
	if len(f.left) == 0 {
		return nil
	}
	entry := entryOf(name)
	f.left = slices.DeleteFunc(f.left, func(r *reading) bool {
		if r.name == name && r.entry == entry {
			same = r
			return false
		}
		return r.ended(0)
	})
	return same
}

// entryOf returns the version of a directory's entry. It does not follow a link, which may lead to another file system.
func entryOf(name string) Version {
	info, err := os.Lstat(name)
	if err != nil {
		return Version{}
	}
	return versionOf(info)
}

// begin starts to read a file.
func begin(name string, known Version, limit int64) *reading {
	r := &reading{name: name, entry: entryOf(name), done: make(chan struct{})}
	go func() {
		defer close(r.done)
		r.content, r.err = readRegular(name, known, limit)
	}()
	return r
}

// ended waits until a read has ended, but not longer than this.
func (r *reading) ended(wait time.Duration) bool {
	late := time.NewTimer(wait)
	defer late.Stop()
	select {
	case <-r.done:
		return true
	case <-late.C:
	}
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

// readRegular reads a regular file.
func readRegular(name string, known Version, limit int64) (Content, error) {
	info, err := os.Stat(name)
	switch {
	case err != nil:
		return Content{}, err
	case !info.Mode().IsRegular():
		return Content{}, &NotRegularError{name, info.Mode()}
	case known != Version{} && versionOf(info) == known:
		return Content{}, ErrUnchanged
	}
	f, err := open(name)
	if err != nil {
		return Content{}, err
	}
	defer f.Close()
	info, err = f.Stat()
	switch {
	case err != nil:
		return Content{}, err
	case !info.Mode().IsRegular():
		return Content{}, &NotRegularError{name, info.Mode()}
	case info.Size() > limit:
		return Content{}, TooLarge(name, limit)
	}
	data, err := readAll(patient{f, kernelWait}, name, limit, info.Size())
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = fmt.Errorf("%s does not answer: it is a file of the kernel that waits; use a file with a content", name)
	}
	return Content{data, versionOf(info)}, err
}

// Overwrite writes into a pipe or a device, such as a shell's >(command).
func Overwrite(name string, data []byte) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_TRUNC|syscall.O_NONBLOCK, 0)
	if errors.Is(err, syscall.ENXIO) {
		return fmt.Errorf("%s is a pipe that no program reads; start its reader first", name)
	}
	if err != nil {
		return err
	}
	_ = f.SetWriteDeadline(time.Now().Add(pipeWait)) // it fails for devices that never wait
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}
