package ipt

import (
	"os"
	"path/filepath"
	"testing"
)

// TestLockWatch opens and closes the lock as a program does: only closing it must be reported.
func TestLockWatch(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	t.Setenv("XTABLES_LOCKFILE", path)
	w, err := openLockWatch()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = w.close() }()
	closed := func(when string, want bool) {
		t.Helper()
		if got, err := w.closed(); got != want || err != nil {
			t.Errorf("%s: %v, %v; want %v", when, got, err, want)
		}
	}
	use := func(during func()) {
		t.Helper()
		file, err := os.OpenFile(path, os.O_RDONLY|os.O_CREATE, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		during()
		if err := file.Close(); err != nil {
			t.Fatal(err)
		}
	}
	closed("without a lock", false)
	use(func() { closed("where there was none", true) })
	for range 2 {
		closed("after the first program", true)
		closed("asked again", false)
		use(func() { closed("while it is open", false) })
	}
	closed("after the last program", true)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	closed("once it is removed", true)
	closed("without a lock again", false)
	use(func() { closed("where there is another", true) })
}
