//go:build !linux

package manifests

import "io/fs"

// versionOf is enough for commands that read files once.
func versionOf(info fs.FileInfo) version {
	return version{size: info.Size(), modified: info.ModTime().UnixNano()}
}
