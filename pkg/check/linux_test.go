//go:build linux

package check

import "testing"

// TestWritable reports a setting that this process cannot write: nobody may write this one.
func TestWritable(t *testing.T) {
	if err := (&Linux{}).Writable("kernel/osrelease"); err == nil {
		t.Error("kernel/osrelease is writable")
	}
}
