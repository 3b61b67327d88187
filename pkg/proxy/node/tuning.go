package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"syscall"

	"k8s.io/klog/v2"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/host"
)

// Setting is a kernel setting and the value it should have.
type Setting struct {
	// Name is its path below /proc/sys.
	Name  string
	Value int64
	// AtLeast accepts a greater value too.
	AtLeast bool
}

// apply writes a setting unless it has its value. If only the machine's first network namespace can change it, apply logs that.
func (s Setting) apply(ctx context.Context, kernel host.Settings) error {
	text, err := kernel.Read(s.Name)
	if err != nil {
		return err
	}
	// A value that is not a number is not the wanted one.
	if have, err := strconv.ParseInt(text, 10, 64); err == nil && (have == s.Value || s.AtLeast && have > s.Value) {
		return nil
	}
	switch err := kernel.Write(s.Name, strconv.FormatInt(s.Value, 10)); {
	case errors.Is(err, host.ErrFixed):
		klog.FromContext(ctx).Info("The limit of connection tracking stays lower than the configuration wants", "reason", err.Error())
	case errors.Is(err, syscall.EINVAL):
		return fmt.Errorf("%w (it is too large for this kernel: set a smaller value in the configuration)", err)
	case err != nil:
		return err
	default:
		klog.FromContext(ctx).Info("Set a kernel setting", "name", s.Name, "value", s.Value)
	}
	return nil
}

// Tuner applies settings. A setting that does not exist yet, because the module that it belongs to is not loaded, can be
// applied later.
type Tuner struct {
	kernel   host.Settings
	settings []Setting
	// missing are the settings that did not exist at Apply.
	missing []Setting
}

// NewTuner makes a Tuner that has applied nothing yet.
func NewTuner(kernel host.Settings, settings []Setting) *Tuner {
	return &Tuner{kernel: kernel, settings: settings}
}

// Apply applies all settings. One that fails does not prevent the others. Settings that do not exist, and those that only the
// machine's first network namespace can change, are logged; the error joins all other failures.
func (t *Tuner) Apply(ctx context.Context) error {
	var failed []error
	t.missing = nil
	for _, s := range t.settings {
		err := s.apply(ctx, t.kernel)
		if errors.Is(err, fs.ErrNotExist) {
			klog.FromContext(ctx).Info("The kernel does not have this setting yet", "name", s.Name, "wanted", s.Value)
			t.missing = append(t.missing, s)
			continue
		}
		failed = append(failed, err)
	}
	return errors.Join(failed...)
}

// ApplyMissing applies the settings that did not exist at [Tuner.Apply]: the first rule that uses connection tracking loads
// its module. The error joins all failures but host.ErrFixed.
func (t *Tuner) ApplyMissing(ctx context.Context) error {
	var failed []error
	for _, s := range t.missing {
		failed = append(failed, s.apply(ctx, t.kernel))
	}
	return errors.Join(failed...)
}
