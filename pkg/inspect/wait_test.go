package inspect

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestWait waits for the answer 0. Each question takes a time, or less if the context ends.
func TestWait(t *testing.T) {
	fails := errors.New("no answer")
	for _, test := range []struct {
		name string
		// answers are those of one question after the other; -1 fails, and the last one stays.
		answers       []int
		takes         time.Duration
		timeout, took time.Duration
		rest          int
		want          int
		err           error
	}{
		{"at once", []int{0}, 0, time.Minute, 0, 0, 0, nil},
		{"after some", []int{3, 2, 0}, 0, time.Minute, 2 * time.Second, 0, 0, nil},
		{"once", []int{3, 0}, 0, 0, 0, 0, 3, nil},
		{"never", []int{3, 2, 1, 0}, 0, 2500 * time.Millisecond, 2500 * time.Millisecond, 0, 1, nil},
		{"after a failure", []int{3, -1, 0}, 0, time.Minute, 2 * time.Second, 0, 0, nil},
		{"failing at last", []int{3, -1}, 0, 2500 * time.Millisecond, 2500 * time.Millisecond, 0, 3, fails},
		{"failing at first", []int{-1, 0}, 0, time.Minute, 0, 0, -1, fails},
		{"interrupted", []int{3, 2}, 2 * time.Second, 4 * time.Second, 4 * time.Second, 0, 3, nil},
		{"interrupted, but done", []int{3, 0}, 2 * time.Second, 4 * time.Second, 4 * time.Second, 0, 0, nil},
		{"interrupted, and so failing", []int{3, -1}, 2 * time.Second, 4 * time.Second, 4 * time.Second, 0, 3, nil},
		{"interrupted at first", []int{3}, 2 * time.Second, time.Second, time.Second, 0, 3, nil},
		{"with long pauses", []int{3, 2, 1, 0}, 2 * time.Second, time.Minute, 32 * time.Second, 4, 0, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began, turn := time.Now(), 0
				got, err := Wait[int]{Timeout: test.timeout, Rest: test.rest, Done: func(answer int) bool { return answer == 0 }, Ask: func(ctx context.Context) (int, error) {
					answer := test.answers[min(turn, len(test.answers)-1)]
					turn++
					select {
					case <-time.After(test.takes):
					case <-ctx.Done():
					}
					if answer < 0 {
						return answer, fails
					}
					return answer, nil
				}}.Run(t.Context())
				if got != test.want || !errors.Is(err, test.err) || time.Since(began) != test.took {
					t.Errorf("got %d, %v after %s; want %d, %v after %s", got, err, time.Since(began), test.want, test.err, test.took)
				}
			})
		})
	}
}

// TestWaitSaysOnce fails with the end of the time, which a question may have said itself.
func TestWaitSaysOnce(t *testing.T) {
	for _, says := range []bool{false, true} {
		_, err := Wait[int]{Timeout: time.Millisecond, Ask: func(ctx context.Context) (int, error) {
			<-ctx.Done()
			if says {
				return 0, fmt.Errorf("no answer: %w", context.Cause(ctx))
			}
			return 0, errors.New("no answer")
		}}.Run(t.Context())
		if err == nil || strings.Count(err.Error(), "nothing is known after 1ms") != 1 {
			t.Errorf("got %v", err)
		}
	}
}
