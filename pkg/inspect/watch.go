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
	// Failed is called with the error of a round after the first: what is shown may restart meanwhile.
	Failed func(error)
}

// Run calls show until ctx ends, which is no error. The first round must not fail, nor what is written between two.
func (w Watch) Run(ctx context.Context, show func() error) error {
	before := ""
	for first := true; ; first = false {
		if w.Terminal {
			before = clearScreen
		}
		if _, err := fmt.Fprint(w.Out, before); err != nil {
			return err
		}
		before = w.Separator
		switch err := show(); {
		case err == nil || ctx.Err() != nil:
		case first:
			return err
		default:
			w.Failed(err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(w.Interval):
		}
	}
}
