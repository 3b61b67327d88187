package inspect

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// waitInterval is the least time between two questions.
const waitInterval = time.Second

// Wait repeats a question until it has the answer that is waited for.
type Wait[T any] struct {
	Ask  func(ctx context.Context) (T, error)
	Done func(answer T) bool
	// Timeout bounds the wait; 0 asks once.
	Timeout time.Duration
	// Rest is how many times as long as an answer took the pause after it is at least, which bounds what questions cost.
	Rest int
	// Show is called with the result of each question after which the wait goes on, and the time since its begin; it may be nil.
	Show func(answer T, err error, after time.Duration)
}

// Run returns the last answer and, if no question after it succeeded, the error of the last one. Only the first must not fail: what is asked
// may restart meanwhile. A question that the end of ctx or of the time interrupts counts only if it is the first, or if its answer is the one
// that is waited for.
func (w Wait[T]) Run(ctx context.Context) (last T, err error) {
	began := time.Now()
	if w.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, w.Timeout, fmt.Errorf("nothing is known after %s", w.Timeout))
		defer cancel()
	}
	for first := true; ; first = false {
		asked := time.Now()
		answer, failed := w.Ask(ctx)
		done := failed == nil && w.Done(answer)
		switch {
		case failed != nil && first:
			if why := context.Cause(ctx); !errors.Is(failed, why) {
				failed = errors.Join(failed, why)
			}
			return answer, failed
		case failed == nil && (done || first || ctx.Err() == nil):
			last, err = answer, nil
		case ctx.Err() == nil:
			err = failed
		}
		if done || w.Timeout == 0 || ctx.Err() != nil {
			return last, err
		}
		if w.Show != nil {
			w.Show(answer, failed, time.Since(began))
		}
		select {
		case <-ctx.Done():
			return last, err
		case <-time.After(max(waitInterval, time.Duration(w.Rest)*time.Since(asked))):
		}
	}
}
