package main

import (
	"bufio"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// imageTools is the folder with the tools of the container image's release, on releases that have other ones.
const imageTools = "image"

// imagePrograms makes the tools in imageTools run as those in a container of the image do: with their own libraries, and with the
// node's /proc, /sys, modules and lock of iptables. They are in imagePath.
const (
	imagePrograms = `if [ -d /` + imageTools + ` ]; then
	busybox mkdir -p ` + imagePath + `
	for d in proc sys dev run tmp lib/modules; do
		busybox mkdir -p /` + imageTools + `/$d
		busybox mount -o bind /$d /` + imageTools + `/$d
	done
	for p in nft iptables-nft iptables-legacy ip6tables-nft ip6tables-legacy; do for v in "" -save -restore; do
		printf '#!/bin/sh\nexec busybox chroot /` + imageTools + ` /usr/sbin/%s "$@"\n' $p$v >` + imagePath + `/$p$v
		busybox chmod +x ` + imagePath + `/$p$v
	done; done
fi`
	imagePath = "/image-programs"
)

// The devices of the emulated machine's first console.
const consoleMajor, consoleMinor = 5, 1

// script is the machine's first program. It mounts the usual file systems, runs /run.sh, and prints its exit code in a
// line that [machine.run] recognises. Control groups are those of version 2. busybox's shell prefers its own programs to those in PATH.
const script = `#!/bin/busybox sh
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
busybox mkdir -p /proc /sys /dev /tmp /run /root /var/lib /usr/local/bin
busybox mount -t proc none /proc
busybox mount -t sysfs sys /sys
busybox mount -t cgroup2 cgroup /sys/fs/cgroup
echo "+cpu +memory" >/sys/fs/cgroup/cgroup.subtree_control
busybox mount -t devtmpfs dev /dev
busybox mount -t tmpfs tmp /tmp
busybox mount -t tmpfs run /run
busybox --install -s /usr/local/bin
export PATH=$PATH:/usr/local/bin
[ -e /bin/sh ] || busybox ln -s busybox /bin/sh
/sbin/ip link set lo up
` + imagePrograms + `
busybox sh /run.sh </dev/null
echo "` + exitLine + `$?"
busybox poweroff -f
`

// wanted reports whether the machine needs a file of a release.
func wanted(path string) bool {
	for _, prefix := range []string{"usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/perl", "usr/lib/x86_64-linux-gnu/perl", "usr/share/info",
		"usr/share/zoneinfo", "usr/lib/python3", "usr/lib/systemd", "usr/lib/udev", "usr/lib/x86_64-linux-gnu/gconv", "boot", "var"} {
		if path == prefix || strings.HasPrefix(path, prefix+"/") {
			return false
		}
	}
	_, module, ok := strings.Cut(path, "usr/lib/modules/")
	if !ok || !strings.HasSuffix(path, ".ko") && !strings.HasSuffix(path, ".ko.xz") {
		return true
	}
	for _, folder := range []string{"/kernel/net/", "/kernel/drivers/net/", "/kernel/lib/", "/kernel/crypto/", "/kernel/arch/x86/crypto/"} {
		if strings.Contains(module, folder) {
			return !strings.Contains(module, "/drivers/net/ethernet/") && !strings.Contains(module, "/drivers/net/wireless/")
		}
	}
	return false
}

// writeImage writes an initramfs: the wanted files of the machine's release, and the other files, and a script to run.
func (m *machine) writeImage(to io.Writer, command string) error {
	buffered := bufio.NewWriterSize(to, 1<<20)
	w := &cpio{to: buffered}
	if err := w.release("", m.root); err != nil {
		return err
	}
	if err := w.add(header{name: "dev/console", mode: 0o020600, major: consoleMajor, minor: consoleMinor}, nil); err != nil {
		return err
	}
	for name, content := range map[string]string{"init": script, "run.sh": command} {
		if err := w.add(header{name: name, mode: 0o100755, size: int64(len(content))}, strings.NewReader(content)); err != nil {
			return err
		}
	}
	if err := w.files(m.files); err != nil {
		return err
	}
	if m.image != "" {
		if err := w.add(header{name: imageTools, mode: 0o040755}, nil); err != nil {
			return err
		}
		if err := w.release(imageTools, m.image); err != nil {
			return err
		}
	}
	if err := w.add(header{name: "TRAILER!!!"}, nil); err != nil {
		return err
	}
	return buffered.Flush()
}

// cpio writes an archive in the "newc" format (the kernel's Documentation/driver-api/early-userspace/buffer-format.rst).
type cpio struct {
	to    io.Writer
	inode int
}

// release adds the wanted files of a release below a folder. Only a release at the top has modules.
func (w *cpio) release(below, root string) error {
	return filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil || name == "." {
			return err
		}
		if !wanted(name) || below != "" && name == "usr/lib/modules" {
			if entry.IsDir() {
				return filepath.SkipDir
			}
			return nil
		}
		return w.copy(filepath.Join(below, name), path)
	})
}

// files adds files of this machine by their path there, and the folders that they are in.
func (w *cpio) files(files map[string]string) error {
	folders := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		path := strings.TrimPrefix(name, "/")
		for at := range len(path) { // the kernel creates no parents
			if folder := path[:at]; path[at] == '/' && !folders[folder] {
				folders[folder] = true
				if err := w.add(header{name: folder, mode: 0o040755}, nil); err != nil {
					return err
				}
			}
		}
		if err := w.copy(path, files[name]); err != nil {
			return err
		}
	}
	return nil
}

// header describes one file; mode is that of stat(2).
type header struct {
	name         string
	mode         uint32
	size         int64
	major, minor int
}

func (w *cpio) add(h header, content io.Reader) error {
	w.inode++
	_, err := fmt.Fprintf(w.to, "070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%s\x00",
		w.inode, h.mode, 0, 0, 1, 0, h.size, 0, 0, h.major, h.minor, len(h.name)+1, 0, h.name)
	const fixed = 110
	if err == nil {
		err = w.pad(fixed + int64(len(h.name)) + 1)
	}
	if err != nil || content == nil {
		return err
	}
	if n, err := io.Copy(w.to, content); err != nil || n != h.size {
		return fmt.Errorf("write %s to the image: %d of %d bytes: %w", h.name, n, h.size, err)
	}
	return w.pad(h.size)
}

// pad pads to a multiple of 4 bytes.
func (w *cpio) pad(size int64) error {
	_, err := w.to.Write(make([]byte, (4-size%4)%4))
	return err
}

// copy adds a file, directory or link of this machine.
func (w *cpio) copy(name, path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	mode := uint32(info.Mode().Perm())
	switch {
	case info.IsDir():
		return w.add(header{name: name, mode: 0o040000 | mode}, nil)
	case info.Mode()&fs.ModeSymlink != 0:
		target, err := os.Readlink(path)
		if err != nil {
			return err
		}
		return w.add(header{name: name, mode: 0o120777, size: int64(len(target))}, strings.NewReader(target))
	case info.Mode().IsRegular():
		file, err := os.Open(path)
		if err != nil {
			return err
		}
		defer file.Close()
		return w.add(header{name: name, mode: 0o100000 | mode, size: info.Size()}, file)
	}
	return nil // devices and sockets: the kernel creates its own
}
