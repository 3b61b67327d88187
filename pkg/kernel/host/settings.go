package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// Settings reads and writes kernel settings by their path below /proc/sys, such as net/ipv4/ip_forward.
type Settings interface {
	// Read returns a setting's value without the newline. If the kernel has no such setting, the error is fs.ErrNotExist.
	Read(name string) (string, error)
	// Write sets a value. Most settings below net belong to the network namespace of the calling thread.
	Write(name, value string) error
}

// Kernel is the running kernel's settings.
type Kernel struct{}

var _ Settings = Kernel{}

const settingsRoot = "/proc/sys"

// ErrFixed is part of the error of a write that no privilege allows here: the setting is the whole machine's, such as the size of
// the connection tracking table, and only the first network namespace can change it.
var ErrFixed = errors.New("the setting is the whole machine's, and this is not its first network namespace")

// Read is part of [Settings].
func (Kernel) Read(name string) (string, error) {
	path, err := locate(name)
	if err != nil {
		return "", err
	}
	value, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("read the kernel setting %s: %w%s", name, err, hint(err))
	}
	return strings.TrimSpace(string(value)), nil
}

// Write is part of [Settings].
func (Kernel) Write(name, value string) error {
	path, err := locate(name)
	if err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_WRONLY, 0) // does not create a file if there is no such setting
	if err == nil {
		_, err = file.WriteString(value)
		err = errors.Join(err, file.Close())
	}
	if info, statErr := os.Stat(path); errors.Is(err, fs.ErrPermission) && statErr == nil && info.Mode().Perm()&0o222 == 0 {
		return fmt.Errorf("set the kernel setting %s to %q: %w: set it on the machine itself", name, value, ErrFixed)
	}
	if err != nil {
		return fmt.Errorf("set the kernel setting %s to %q: %w%s", name, value, err, hint(err))
	}
	return nil
}

// locate returns the file of a setting.
func locate(name string) (string, error) {
	if !filepath.IsLocal(name) {
		return "", fmt.Errorf("%q is not a kernel setting: give its path below %s, such as net/ipv4/ip_forward", name, settingsRoot)
	}
	return filepath.Join(settingsRoot, name), nil
}

func hint(err error) string {
	switch {
	case errors.Is(err, syscall.EROFS):
		return ": /proc/sys is read-only; in a DaemonSet, securityContext.privileged: true of the init container, which runs --init-only, makes it writable"
	case errors.Is(err, fs.ErrNotExist):
		return ": this kernel has no such setting; its module may not be loaded"
	case errors.Is(err, fs.ErrPermission):
		return ": run as root, in a container with a writable /proc/sys (privileged), or set it beforehand"
	}
	return ""
}
