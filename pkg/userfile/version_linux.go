package userfile

import (
	"io/fs"
	"syscall"
)

// versionOf also notices a content that was changed in place within the same time of modification, or replaced by a file
// that keeps its times.
func versionOf(info fs.FileInfo) Version {
	v := Version{size: info.Size(), modified: info.ModTime().UnixNano()}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		v.device, v.inode, v.changed = stat.Dev, stat.Ino, stat.Ctim.Nano()
	}
	return v
}
