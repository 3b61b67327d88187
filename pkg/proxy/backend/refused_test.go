package backend

import (
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"testing"
)

var errBad = errors.New("refused")

// TestFirstRefused refuses some of n units: the first one is found, those before it are written, in a number of writes that
// grows with the logarithm of n.
func TestFirstRefused(t *testing.T) {
	for _, test := range []struct {
		n    int
		bad  []int
		want int
	}{
		{1, []int{0}, 0}, {2, []int{1}, 1}, {2, []int{0, 1}, 0}, {100, []int{0}, 0}, {100, []int{99}, 99}, {100, []int{50, 51}, 50},
		{10_000, []int{1234, 7000}, 1234}, {10_000, nil, 10_000},
	} {
		t.Run(fmt.Sprint(test.n, test.bad), func(t *testing.T) {
			written, writes := map[int]bool{}, 0
			unit, err := FirstRefused(test.n, func(from, to int) error {
				writes++
				if slices.ContainsFunc(test.bad, func(bad int) bool { return from <= bad && bad < to }) {
					return errBad
				}
				for i := from; i < to; i++ {
					written[i] = true
				}
				return nil
			}, func(err error) bool { return errors.Is(err, errBad) })
			if unit != test.want || (err == nil) != (len(test.bad) == 0) {
				t.Errorf("got unit %d and error %v, want unit %d", unit, err, test.want)
			}
			for i := range unit {
				if !written[i] {
					t.Fatalf("unit %d was not written", i)
				}
			}
			if most := bits.Len(uint(test.n)) + 5; writes > most {
				t.Errorf("%d writes, want at most %d", writes, most)
			}
		})
	}
}

// TestNobodyToBlame refuses everything, or fails otherwise: no unit is to blame.
func TestNobodyToBlame(t *testing.T) {
	errOther := errors.New("no memory")
	for _, cause := range []error{errBad, errOther} {
		unit, err := FirstRefused(100, func(int, int) error { return cause }, func(err error) bool { return errors.Is(err, errBad) })
		if unit != -1 || !errors.Is(err, cause) {
			t.Errorf("%v: got unit %d and error %v", cause, unit, err)
		}
	}
}
