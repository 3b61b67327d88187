//go:build !linux

package userfile

import "io/fs"

// versionOf is enough for commands that read files once.
func versionOf(info fs.FileInfo) Version {
	return Version{size: info.Size(), modified: info.ModTime().UnixNano()}
}
