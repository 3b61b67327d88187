//go:build linux

package nftwatch

import "testing"

// TestNil checks that a nil Watch does nothing.
func TestNil(t *testing.T) {
	var w *Watch
	w.Arm()
	w.Disarm()
	w.Report()
	if w.Modified() != nil {
		t.Error("it has a channel")
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
}
