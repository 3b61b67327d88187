package backend

import (
	"errors"
	"slices"
	"testing"
)

// TestInParts writes units of which some do not fit together: in order, in no more parts than necessary, up to the first error.
func TestInParts(t *testing.T) {
	errLarge, errOther := errors.New("too large"), errors.New("other")
	for name, test := range map[string]struct {
		n, most, bad int
		want         [][2]int
		err          error
	}{
		"none":             {0, 10, -1, [][2]int{{0, 0}}, nil},
		"all fit":          {10, 10, -1, [][2]int{{0, 10}}, nil},
		"halves fit":       {10, 5, -1, [][2]int{{0, 5}, {5, 10}}, nil},
		"one does not fit": {4, 0, -1, nil, errLarge},
		"another error":    {8, 4, 5, [][2]int{{0, 4}}, errOther},
	} {
		t.Run(name, func(t *testing.T) {
			var parts [][2]int
			err := InParts(test.n, func(from, to int) error {
				switch {
				case to-from > test.most:
					return errLarge
				case from <= test.bad && test.bad < to:
					return errOther
				}
				parts = append(parts, [2]int{from, to})
				return nil
			}, func(err error) bool { return errors.Is(err, errLarge) })
			if !slices.Equal(parts, test.want) || !errors.Is(err, test.err) {
				t.Errorf("wrote %v, error %v; want %v, %v", parts, err, test.want, test.err)
			}
		})
	}
}
