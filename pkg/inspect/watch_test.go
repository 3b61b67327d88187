package inspect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestWatch shows three rounds to a pipe, a terminal and as YAML.
func TestWatch(t *testing.T) {
	for _, test := range []struct {
		watch Watch
		want  string
	}{
		{Watch{Separator: "\n"}, "1\n\n2\n\n3\n"},
		{Watch{Separator: "\n", Terminal: true}, clearScreen + "1\n" + clearScreen + "2\n" + clearScreen + "3\n"},
		{Watch{Separator: "---\n"}, "1\n---\n2\n---\n3\n"},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			var out strings.Builder
			test.watch.Out, test.watch.Interval = &out, time.Minute
			rounds, started := 0, time.Now()
			err := test.watch.Run(ctx, func() error {
				rounds++
				fmt.Fprintln(&out, rounds)
				if rounds == 3 {
					cancel()
				}
				return nil
			})
			if err != nil || out.String() != test.want || time.Since(started) != 2*time.Minute {
				t.Errorf("%+v showed %q in %s (%v), want %q", test.watch, out.String(), time.Since(started), err, test.want)
			}
		})
	}
}

// TestWatchFails ends if the first round fails, or if nothing can be written, and goes on after later rounds that fail.
func TestWatchFails(t *testing.T) {
	failed := errors.New("failed")
	var out strings.Builder
	err := Watch{Out: &out}.Run(t.Context(), func() error { return failed })
	if !errors.Is(err, failed) {
		t.Errorf("got %v, want %v", err, failed)
	}
	for _, test := range []struct {
		out  io.Writer
		want string
	}{{&out, "[<nil> failed <nil>]"}, {full{}, "[<nil>]"}} {
		ctx, cancel := context.WithCancel(t.Context())
		t.Cleanup(cancel)
		var rounds []error
		err := Watch{Out: test.out, Separator: "\n", Failed: func(err error) { rounds = append(rounds, err) }}.Run(ctx, func() error {
			switch len(rounds) {
			case 1:
				return failed
			case 2:
				cancel()
			case 3:
				return nil // both the interval and the watch have ended
			}
			rounds = append(rounds, nil)
			return nil
		})
		if got := fmt.Sprint(rounds); got != test.want || errors.Is(err, io.ErrShortWrite) != (test.want == "[<nil>]") {
			t.Errorf("rounds %s, %v; want %s", got, err, test.want)
		}
	}
}

// full is a writer that takes nothing.
type full struct{}

func (full) Write(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	return 0, io.ErrShortWrite
}
