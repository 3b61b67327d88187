// Package hosttest is a fake of the kernel's settings of package host, for tests.
package hosttest

import (
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/host"
)

// Fake holds settings in memory, in Values. If Refuse is not nil, every write fails with it.
type Fake struct {
	Values map[string]string
	Refuse error
	// Written lists the writes, as name=value.
	Written []string
}

var _ host.Settings = (*Fake)(nil)

// Read is part of [host.Settings].
func (f *Fake) Read(name string) (string, error) {
	if !filepath.IsLocal(name) {
		return "", fmt.Errorf("%q is not a kernel setting", name)
	}
	value, ok := f.Values[name]
	if !ok {
		return "", fmt.Errorf("read the kernel setting %s: %w", name, fs.ErrNotExist)
	}
	return value, nil
}

// Write is part of [host.Settings].
func (f *Fake) Write(name, value string) error {
	if _, err := f.Read(name); err != nil {
		return err
	}
	if f.Refuse != nil {
		return fmt.Errorf("set the kernel setting %s to %q: %w", name, value, f.Refuse)
	}
	f.Values[name] = value
	f.Written = append(f.Written, name+"="+value)
	return nil
}
