package view

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
)

// TestMeter checks when counters are read: at most once a second, for at most a tenth of the time, and without a page that
// waits long. A failure keeps the last counters.
func TestMeter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, readings, takes, failure := newMeter(), 0, 10*time.Millisecond, error(nil)
		ask := func() (counters, time.Duration) {
			began := time.Now()
			c := m.counters(t.Context(), subject{}, func(context.Context) (*backend.Connections, error) {
				readings++
				time.Sleep(takes)
				return backend.NewConnections(), failure
			})
			return c, time.Since(began)
		}
		c, _ := ask()
		if readings != 1 || c.now == nil || c.earlier != nil || c.span() != 0 {
			t.Errorf("the first look: %d readings, %+v", readings, c)
		}
		if ask(); readings != 1 {
			t.Errorf("%d readings for two looks at once", readings)
		}
		time.Sleep(5 * time.Second)
		if c, _ = ask(); readings != 2 || c.span() < 5*time.Second || c.span() > 6*time.Second {
			t.Errorf("five seconds later: %d readings over %s", readings, c.span())
		}
		for range 20 { // frequent looks keep a window that is not too short
			time.Sleep(1100 * time.Millisecond)
			if c, _ = ask(); c.span() < time.Second || c.span() > window+2*time.Second {
				t.Errorf("the rate is over %s", c.span())
			}
		}
		takes, readings = 3*time.Second, 0
		time.Sleep(2 * time.Second)
		last := c.now
		if c, waited := ask(); waited != patience || c.now != last {
			t.Errorf("a slow reading: the page waited %s", waited)
		}
		time.Sleep(4 * time.Second)
		if c, _ = ask(); c.now == last || readings != 1 {
			t.Errorf("after a slow reading: %d readings, new: %t", readings, c.now != last)
		}
		time.Sleep(25 * time.Second)
		if ask(); readings != 1 {
			t.Error("a slow reading is followed by another one too soon")
		}
		time.Sleep(3 * time.Second)
		failure, takes = errors.New("no rights"), 0
		last = c.now
		if c, _ = ask(); !errors.Is(c.err, failure) || c.now != last {
			t.Errorf("a failure: %+v", c)
		}
	})
}

// TestMeterSubjects drops the subjects that nobody has asked for the longest.
func TestMeterSubjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMeter()
		ask := func(name string) {
			m.counters(t.Context(), subject{Name: name}, func(context.Context) (*backend.Connections, error) { return backend.NewConnections(), nil })
			time.Sleep(time.Second)
		}
		for n := range maxSubjects + 5 {
			ask("")
			ask(strconv.Itoa(n + 1))
		}
		if len(m.subjects) != maxSubjects || m.subjects[subject{}] == nil || m.subjects[subject{Name: "6"}] != nil || m.subjects[subject{Name: "7"}] == nil {
			t.Errorf("%d subjects: %v", len(m.subjects), m.subjects)
		}
	})
}

// TestMeterReturns asks for the overview again after it was dropped: its readings are kept again.
func TestMeterReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, reads := newMeter(), 0
		ask := func(name string) counters {
			return m.counters(t.Context(), subject{Name: name}, func(context.Context) (*backend.Connections, error) {
				reads++
				return backend.NewConnections(), nil
			})
		}
		for n := range maxSubjects + 1 {
			ask(strconv.Itoa(n + 1))
			time.Sleep(time.Second)
		}
		reads = 0
		ask("")
		ask("")
		if reads != 1 {
			t.Errorf("%d readings at once, want 1", reads)
		}
		time.Sleep(window)
		if c := ask(""); c.now == nil || c.earlier == nil {
			t.Errorf("after two readings: %+v", c)
		}
	})
}

// TestMeterRests opens many pages while readings are slow: together, too, they take a tenth of the time, also after a pause in which all
// subjects were dropped.
func TestMeterRests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, busy := newMeter(), time.Duration(0)
		for n := range 600 {
			m.counters(t.Context(), subject{Name: strconv.Itoa(n % 10)}, func(context.Context) (*backend.Connections, error) {
				time.Sleep(3 * time.Second)
				busy += 3 * time.Second
				return backend.NewConnections(), nil
			})
			if n%100 == 0 {
				m.forget()
			}
			time.Sleep(time.Second)
		}
		if busy < 30*time.Second || busy > 90*time.Second {
			t.Errorf("%s of some 600 s were spent on readings", busy)
		}
		time.Sleep(readTimeout)
	})
}

// TestRate checks growth, and a counter that was created again.
func TestRate(t *testing.T) {
	c := counters{now: &backend.Connections{At: time.Unix(12, 0)}, earlier: &backend.Connections{At: time.Unix(10, 0)}}
	for _, test := range []struct {
		now, before uint64
		want        float64
	}{{10, 10, 0}, {30, 10, 10}, {4, 10, 2}} {
		if got := c.rate(test.now, test.before); got != test.want {
			t.Errorf("from %d to %d: %v, want %v", test.before, test.now, got, test.want)
		}
	}
}
