package keeper

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

var (
	chain   = nf.Object{Table: nf.TableName{Name: "ours"}, Kind: nf.ChainObject, Name: "c"}
	foreign = nf.Object{Table: nf.TableName{Name: "other"}, Kind: nf.ChainObject, Name: "c"}
)

// stub is all that a Keeper uses: Notices, Rules and a Pass.
type stub struct {
	modified chan struct{}
	writes   []nf.Write
	missed   bool
	paused   bool
	// alone is the answer of Resume, size and own are those of each Pass; during runs in Put.
	alone     bool
	size, own int
	during    func()

	// begun has the arguments of each Begin, reread of each Reread; ended is that of End, forgotten counts Forget.
	begun, reread []Touched
	ended         []bool
	forgotten     int
	// fails is the next error of Reread, drift the next drift; work is passed on to later.
	fails error
	drift *backend.Drift
	work  func(context.Context)
}

func (s *stub) Modified() <-chan struct{} { return s.modified }
func (s *stub) Close() error              { return nil }
func (s *stub) Pause() error              { s.paused = true; return nil }
func (s *stub) Resume(int) bool           { s.paused = false; return s.alone }
func (s *stub) Family() cluster.Family    { return cluster.IPv4 }
func (s *stub) Holds(o nf.Object) bool    { return o.Table == chain.Table }
func (s *stub) Forget()                   { s.forgotten++ }
func (s *stub) Size() int                 { return s.size }
func (s *stub) Finish()                   {}
func (s *stub) Transactions() (int, bool) { return s.own, true }

func (s *stub) Report() {
	select {
	case s.modified <- struct{}{}:
	default:
	}
}

func (s *stub) Take() (writes []nf.Write, all bool) {
	writes, all = s.writes, !s.missed
	s.writes, s.missed = nil, false
	return writes, all
}

func (s *stub) Begin(_ context.Context, _ *plan.Plan, touched Touched) Pass {
	s.begun = append(s.begun, touched)
	return s
}

func (s *stub) Put() {
	if s.during != nil {
		s.during()
	}
}

func (s *stub) End(alone bool) backend.Result {
	s.ended = append(s.ended, alone)
	return backend.Result{}
}

func (s *stub) Reread(_ context.Context, touched Touched, later Later) (left Touched, drift *backend.Drift, err error) {
	if err, s.fails = s.fails, nil; err != nil {
		return touched, nil, err
	}
	s.reread = append(s.reread, touched)
	drift, s.drift = s.drift, nil
	switch {
	case later == nil:
		left.All = touched.All
	case s.work != nil:
		later(s.work)
		s.work = nil
	}
	return left, drift, nil
}

// write is a transaction of a program.
func write(objects ...nf.Object) nf.Write {
	return nf.Write{Program: "nft", Process: 7, Objects: objects}
}

// kept returns a Keeper of a stub.
func kept(t *testing.T, s *stub) *Keeper {
	t.Helper()
	s.modified = make(chan struct{}, 1)
	k := New(s, 0.05, s)
	t.Cleanup(func() { _ = k.Close() })
	return k
}

// TestAlone has nobody else write during a Sync, or others, in a pause of the notices or not.
func TestAlone(t *testing.T) {
	for name, test := range map[string]struct {
		stub  stub
		wrote []nf.Write
		alone bool
		// after is what the next Check compares.
		after Touched
	}{
		"our two transactions": {stub{own: 2}, []nf.Write{write(chain), write(chain)}, true, Touched{}},
		"another one":          {stub{own: 1}, []nf.Write{write(chain), write(chain)}, false, TouchedBy(false, []nf.Object{chain})},
		"only another one":     {stub{}, []nf.Write{write(chain)}, false, Touched{Objects: map[nf.Object]struct{}{chain: {}}, Writer: "nft (process 7)"}},
		"in a pause, ours":     {stub{size: large + 1, alone: true}, nil, true, Touched{}},
		"in a pause, others'":  {stub{size: large + 1}, nil, false, Touched{All: true}},
		"before the pause":     {stub{size: large + 1, own: 1, alone: true}, []nf.Write{write(chain)}, false, Touched{Objects: map[nf.Object]struct{}{chain: {}}, Writer: "nft (process 7)"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := &test.stub
			k := kept(t, s)
			s.during = func() {
				if s.paused != (s.size > large) {
					t.Errorf("%d objects are written in a pause: %t", s.size, s.paused)
				}
				s.writes = test.wrote
			}
			k.Sync(t.Context(), nil)
			if !slices.Equal(s.ended, []bool{test.alone}) {
				t.Errorf("alone: %t", s.ended)
			}
			if _, err := k.Check(t.Context()); err != nil {
				t.Fatal(err)
			}
			switch {
			case test.after.Empty() && len(s.reread) == 0:
			case len(s.reread) != 1 || !equal(s.reread[0], test.after):
				t.Errorf("compared %+v, want %+v", s.reread, test.after)
			}
		})
	}
}

func equal(a, b Touched) bool {
	same := len(a.Objects) == len(b.Objects)
	for o := range a.Objects {
		_, has := b.Objects[o]
		same = same && has
	}
	return same && a.All == b.All && a.Writer == b.Writer
}

// TestWriterIsPrintable has a program write whose name would break a line of the log, and color a terminal.
func TestWriterIsPrintable(t *testing.T) {
	s := &stub{writes: []nf.Write{{Program: "a\n\x1b[31mb", Process: 7, Objects: []nf.Object{chain}}}}
	if _, err := kept(t, s).Check(t.Context()); err != nil || s.reread[0].Writer != `a\n\x1b[31mb (process 7)` {
		t.Errorf("%q, %v", s.reread[0].Writer, err)
	}
}

// TestBeforeSync compares what is quick before a Sync, which learns what was touched. What is found is returned by Check. Rules that
// could not be compared are read.
func TestBeforeSync(t *testing.T) {
	s := &stub{writes: []nf.Write{write(foreign), write(chain)}, missed: true, drift: &backend.Drift{}}
	k := kept(t, s)
	k.Sync(t.Context(), nil)
	if len(s.reread) != 1 || !s.begun[0].All || len(s.begun[0].Objects) != 1 || s.forgotten > 0 {
		t.Errorf("compared %+v, began with %+v", s.reread, s.begun)
	}
	drifts, err := k.Check(t.Context())
	if err != nil || len(drifts) != 1 || len(s.reread) != 2 || !s.reread[1].All || len(s.reread[1].Objects) > 0 {
		t.Errorf("Check: %v, %v, compared %+v", drifts, err, s.reread)
	}
	s.writes, s.fails = []nf.Write{write(chain)}, errors.New("no memory")
	k.Sync(t.Context(), nil)
	if s.forgotten != 1 {
		t.Error("what could not be compared is taken for our own")
	}
}

// TestCheckFails compares again after an error.
func TestCheckFails(t *testing.T) {
	s := &stub{writes: []nf.Write{write(chain)}, fails: errors.New("no memory")}
	k := kept(t, s)
	if _, err := k.Check(t.Context()); err == nil {
		t.Error("no error")
	}
	select {
	case <-k.Modified():
	default:
		t.Error("it does not ask for a check")
	}
	if _, err := k.Check(t.Context()); err != nil || len(s.reread) != 1 {
		t.Errorf("%v, compared %+v", err, s.reread)
	}
}

// TestLater passes on work: Reread is called again when it has ended, and not before.
func TestLater(t *testing.T) {
	s := &stub{missed: true}
	k := kept(t, s)
	end := make(chan struct{})
	s.work = func(ctx context.Context) {
		select {
		case <-end:
		case <-ctx.Done():
		}
	}
	for range 3 {
		if _, err := k.Check(t.Context()); err != nil || len(s.reread) != 1 {
			t.Fatal(err, s.reread)
		}
	}
	close(end)
	<-k.Modified()
	if _, err := k.Check(t.Context()); err != nil || len(s.reread) != 2 || !s.reread[1].Empty() {
		t.Error(err, s.reread)
	}
	s.missed, s.work = true, func(ctx context.Context) { <-ctx.Done() } // which Close ends
	if _, err := k.Check(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestBudget uses up processor time: what was touched waits until there is some again.
func TestBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stub{}
		k := kept(t, s)
		checks := func() int {
			before := len(s.reread)
			s.writes = []nf.Write{write(chain)}
			if _, err := k.Check(t.Context()); err != nil {
				t.Fatal(err)
			}
			return len(s.reread) - before
		}
		if checks() != 1 {
			t.Error("the first write is not compared")
		}
		k.written.spend(writtenCredit + time.Second)
		if time.Sleep(19 * time.Second); checks() != 0 {
			t.Error("more than 5 % of a core are used")
		}
		if time.Sleep(2 * time.Second); checks() != 1 {
			t.Error("no time is left after 21 s without any use")
		}
		k.possible.allows(time.Now())
		k.possible.spend(time.Hour) // which is for what may have been written
		if checks() != 1 {
			t.Error("what was written waits for what may have been")
		}
		k.families[0].touched.All = true
		before := len(s.reread)
		if _, err := k.Check(t.Context()); err != nil || len(s.reread) > before {
			t.Error(err, "what may have been written takes the time of what was")
		}
	})
}
