package inspect

import (
	"context"
	"fmt"
	"io"
	"time"
)

// clearScreen moves the cursor of a terminal to its first line and clears it.
const clearScreen = "\x1b[H\x1b[2J"

// Watch prints something periodically.
type Watch struct {
	// Interval is the time between two rounds.
	Interval time.Duration
	Out      io.Writer
	// Separator is printed between two rounds. Terminal clears the screen before each round instead.
	Separator string
	Terminal  bool
}

// Run calls show until it fails or ctx ends, which is no error.
func (w Watch) Run(ctx context.Context, show func() error) error {
	before := ""
	for {
		if w.Terminal {
			before = clearScreen
		}
		if _, err := fmt.Fprint(w.Out, before); err != nil {
			return err
		}
		before = w.Separator
		if err := show(); err != nil && ctx.Err() == nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(w.Interval):
		}
	}
}
