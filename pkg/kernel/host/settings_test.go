package host_test

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/host"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/host/hosttest"
)

// TestSettings checks that the kernel and the fake return the same errors.
func TestSettings(t *testing.T) {
	for name, s := range map[string]host.Settings{"kernel": host.Kernel{}, "fake": &hosttest.Fake{Values: map[string]string{"kernel/ostype": "Linux"}}} {
		t.Run(name, func(t *testing.T) {
			if got, err := s.Read("kernel/ostype"); err != nil || got != "Linux" {
				t.Errorf("kernel/ostype is %q, %v", got, err)
			}
			for _, bad := range []string{"../../etc/passwd", "/etc/passwd", ""} {
				if _, err := s.Read(bad); err == nil || !strings.Contains(err.Error(), "not a kernel setting") {
					t.Errorf("Read(%q): %v", bad, err)
				}
				if err := s.Write(bad, "1"); err == nil {
					t.Errorf("Write(%q) succeeded", bad)
				}
			}
			if _, err := s.Read("net/ipv4/no_such_thing"); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("Read of a setting that does not exist: %v", err)
			}
			if err := s.Write("net/ipv4/no_such_thing", "1"); !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) {
				t.Errorf("Write of a setting that does not exist: %v", err)
			}
		})
	}
	if _, err := os.Stat("/proc/sys/net/ipv4/no_such_thing"); err == nil {
		t.Error("a file was created")
	}
}

func TestFakeRefuses(t *testing.T) {
	f := &hosttest.Fake{Values: map[string]string{"a": "0"}}
	if err := f.Write("a", "1"); err != nil || f.Values["a"] != "1" || len(f.Written) != 1 {
		t.Errorf("after a write: %v, %v", f, err)
	}
	f.Refuse = fs.ErrPermission
	if err := f.Write("a", "2"); !errors.Is(err, fs.ErrPermission) || f.Values["a"] != "1" {
		t.Errorf("a refused write: %v, %v", f, err)
	}
}
