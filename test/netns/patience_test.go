//go:build linux

package netns

import (
	"testing"
	"time"
)

// slow returns a clock whose only witness is delayed.
func slow(t *testing.T, delay func() time.Duration) *patience {
	p := &patience{limit: patienceLimit, done: make(chan struct{}), waiting: map[*waiter]struct{}{}}
	w := &witness{requested: make(chan struct{}), arrived: make(chan struct{}, 1), done: p.done}
	go func() {
		for {
			select {
			case <-w.requested:
				time.Sleep(delay())
				w.arrived <- struct{}{}
			case <-w.done:
				return
			}
		}
	}()
	p.witnesses = []*witness{w}
	t.Cleanup(p.stop)
	return p
}

// TestPatienceWaits checks that time on an overloaded machine does not count, up to
// the limit.
func TestPatienceWaits(t *testing.T) {
	p := slow(t, func() time.Duration { return 3 * patienceTick })
	const wait = 5 * patienceTick
	started, rung := time.Now(), make(chan struct{})
	p.after(wait, func() { close(rung) })
	<-rung
	if took := time.Since(started); took < patienceLimit*wait {
		t.Errorf("waited %v on an overloaded machine; want the limit, %v", took, patienceLimit*wait)
	}
}

// TestPatienceResumes checks that the clock continues after an overload.
func TestPatienceResumes(t *testing.T) {
	const wait, busy = 50 * patienceTick, 60 * patienceTick
	started := time.Now()
	p := slow(t, func() time.Duration {
		if time.Since(started) < busy {
			return 3 * patienceTick
		}
		return 0
	})
	rung := make(chan struct{})
	p.after(wait, func() { close(rung) })
	<-rung
	// The tick in which it changes may count or not.
	if took := time.Since(started); took < busy+wait-4*patienceTick {
		t.Errorf("waited %v, want %v of overload and then %v", took, busy, wait)
	}
}

// TestPatienceOneClock checks that canceled waits do not make the clock faster.
func TestPatienceOneClock(t *testing.T) {
	p := slow(t, func() time.Duration { return 0 })
	for range 50 {
		p.after(time.Hour, func() {})()
	}
	const wait = 20 * patienceTick
	started, rung := time.Now(), make(chan struct{})
	p.after(wait, func() { close(rung) })
	<-rung
	if took := time.Since(started); took < wait-2*patienceTick {
		t.Errorf("waited %v, want %v", took, wait)
	}
}

// TestPatienceReader checks that each request of a reader has one arrival, also after it has been idle and after a lost packet.
func TestPatienceReader(t *testing.T) {
	Require(t, "nft")
	lab, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer lab.Close()
	done := make(chan struct{})
	defer close(done)
	w, err := newReader(lab.Gateway, done)
	if err != nil {
		t.Fatal(err)
	}
	ask := func() time.Duration {
		started := time.Now()
		w.request()
		w.await()
		return time.Since(started)
	}
	for range 3 {
		ask()
	}
	time.Sleep(1200 * time.Millisecond)
	ask()
	nft(t, lab.Gateway, "table inet loss { chain in { type filter hook input priority 0; policy drop; }; }")
	if took := ask(); took < time.Second/2 {
		t.Errorf("a lost packet arrived after %v", took)
	}
	nft(t, lab.Gateway, "delete table inet loss")
	for range 3 {
		ask()
	}
	select {
	case <-w.arrived:
		t.Error("a packet arrived without a request")
	case <-time.After(50 * time.Millisecond):
	}
}

func TestPatienceStop(t *testing.T) {
	p := slow(t, func() time.Duration { return 0 })
	rung := make(chan string, 2)
	stop := p.after(2*patienceTick, func() { rung <- "stopped" })
	p.after(5*patienceTick, func() { rung <- "kept" })
	stop()
	if got := <-rung; got != "kept" {
		t.Error("a stopped callback was called")
	}
}

// TestPatienceVariable reads the limit from the environment.
func TestPatienceVariable(t *testing.T) {
	for value, want := range map[string]time.Duration{"": patienceLimit, "100": 100, "0": 0, "-1": 0, "many": 0, "65536": 0} {
		limit, err := limitOf(value)
		if limit != want || (err == nil) != (want > 0) {
			t.Errorf("%q: %d, %v; want %d", value, limit, err, want)
		}
	}
}
