package inspect

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/status/v1alpha1"
)

// TestDrain waits until no connection is open, for the timeout, and while the proxy does not answer.
func TestDrain(t *testing.T) {
	const wiped = "\r\x1b[K"
	restarts := errors.New("no kube-proxy answers")
	counts := func(numbers ...int) (all []*v1alpha1.OpenConnections) {
		for _, n := range numbers {
			open := &v1alpha1.OpenConnections{Connections: n}
			if n > 0 {
				open.Items = []v1alpha1.OpenEndpoint{{Namespace: "default", Name: "web", Endpoint: "10.244.1.2:8080", Connections: n}}
			}
			all = append(all, open)
		}
		return all
	}
	failing := append(counts(2), nil)
	for _, test := range []struct {
		name string
		// counts are the results of one count after the other; nil fails, and the last one stays.
		counts   []*v1alpha1.OpenConnections
		timeout  time.Duration
		terminal bool
		// left is how many connections are returned; -1 if an error is.
		left int
		took time.Duration
		want string
	}{
		{"nothing is open", counts(0), time.Minute, false, 0, 0, ""},
		{"it drains", counts(3, 3, 1, 0), time.Minute, false, 0, 3 * time.Second, "0s: 3 open connections to 1 endpoint\n2s: 1 open connection to 1 endpoint\n"},
		{"on a terminal", counts(2, 2, 0), time.Minute, true, 0, 2 * time.Second, wiped + "2 open connections to 1 endpoint, 0s of 1m0s" +
			wiped + "2 open connections to 1 endpoint, 1s of 1m0s" + wiped},
		{"it does not", counts(5), 2500 * time.Millisecond, false, 5, 2500 * time.Millisecond, "0s: 5 open connections to 1 endpoint\n"},
		{"it is counted once", counts(5), 0, false, 5, 0, ""},
		{"the proxy restarts", []*v1alpha1.OpenConnections{failing[0], nil, {}}, time.Minute, false, 0, 2 * time.Second,
			"0s: 2 open connections to 1 endpoint\n1s: no kube-proxy answers\n"},
		{"the proxy ends", failing, 1500 * time.Millisecond, false, -1, 1500 * time.Millisecond, "0s: 2 open connections to 1 endpoint\n1s: no kube-proxy answers\n"},
		{"no proxy runs", []*v1alpha1.OpenConnections{nil}, time.Minute, false, -1, 0, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out strings.Builder
				turn, began := 0, time.Now()
				drain := Drain{Timeout: test.timeout, Out: &out, Count: func(context.Context) (*v1alpha1.OpenConnections, error) {
					count := test.counts[min(turn, len(test.counts)-1)]
					turn++
					if count == nil {
						return nil, restarts
					}
					return count, nil
				}}
				if test.terminal {
					drain.Progress.Out = &out
				}
				open, err := drain.Run(t.Context())
				if (err != nil) != (test.left < 0) || err == nil && open.Connections != test.left || time.Since(began) != test.took || out.String() != test.want {
					t.Errorf("got %+v, %v after %s, showing %q; want %d after %s, showing %q", open, err, time.Since(began), out.String(), test.left, test.took, test.want)
				}
			})
		})
	}
}

// TestDrainRests counts a large table less often.
func TestDrainRests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		counts := 0
		if _, err := (Drain{Timeout: time.Minute, Out: &strings.Builder{}, Count: func(context.Context) (*v1alpha1.OpenConnections, error) {
			time.Sleep(2 * time.Second)
			counts++
			return &v1alpha1.OpenConnections{Connections: 1}, nil
		}}).Run(t.Context()); err != nil || counts != 7 {
			t.Errorf("%d counts of 2 s in a minute (%v), want 7", counts, err)
		}
	})
}
