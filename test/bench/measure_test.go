//go:build linux

package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

// TestNothingMeasured checks that what was not measured has no figures: neither zeros, nor values that JSON has no form for.
func TestNothingMeasured(t *testing.T) {
	t.Parallel()
	b := &bench{plan: &plan{until: time.Now().Add(time.Minute)}, run: &Run{}, process: shell(t, "exec sleep 1000")}
	unexpected := errors.New("measured")
	if err := b.series("changes", 0, func(int) (time.Duration, error) { return 0, unexpected }); err != nil {
		t.Fatal(err)
	}
	b.until = time.Now()
	if err := b.while("churn", func(context.Context) int { return 0 }); err != nil {
		t.Fatal(err)
	}
	if len(b.run.Figures) > 0 || len(b.run.Notes) != 1 || !strings.HasPrefix(b.run.Notes[0], "churn: ") {
		t.Errorf("figures %v, notes %q", b.run.Figures, b.run.Notes)
	}
	if err := (&Report{Runs: []*Run{b.run}}).save(t.TempDir()); err != nil {
		t.Error(err)
	}
}
