package proxy

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

var errRefused = errors.New("the kernel said no")

func (r *run) wantSyncs(when string, want ...time.Duration) {
	r.t.Helper()
	if diff := cmp.Diff(want, r.syncs()); diff != "" {
		r.t.Errorf("%s: times of syncs since the start (-want +got):\n%s", when, diff)
	}
}

// wantEnd waits for Run's end.
func (r *run) wantEnd(want error) {
	r.t.Helper()
	if got := <-r.ended; !errors.Is(got, want) {
		r.t.Errorf("Run returned %v, want %v", got, want)
	}
	if len(r.backend.others) > 0 {
		r.t.Errorf("the rules were not left alone: %v", r.backend.others)
	}
}

func TestStartsWhenAllSourcesAreComplete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := prepare(t)
		r.sources = append(r.sources, newSource())
		r.start()
		r.change()
		r.pass(time.Hour)
		r.wantSyncs("no source is complete")
		close(r.sources[1].complete)
		r.pass(time.Hour)
		r.wantSyncs("one source is complete")
		close(r.sources[0].complete)
		synctest.Wait()
		r.wantSyncs("both are complete", 2*time.Hour)
		if n := r.services(0); n != 1 {
			t.Errorf("the first plan has %d Services, want 1", n)
		}
	})
}

// earlyBackend notes when it reads early.
type earlyBackend struct {
	*fakeBackend
	// began and ended are the times of ReadEarly, which takes as long as it says.
	began, ended time.Time
	takes        time.Duration
}

func (b *earlyBackend) ReadEarly(ctx context.Context) {
	b.set(func(*fakeBackend) { b.began = time.Now() })
	select {
	case <-time.After(b.takes):
	case <-ctx.Done():
	}
	b.set(func(*fakeBackend) { b.ended = time.Now() })
}

// TestReadEarly lets the backend read the kernel's state while the sources read theirs, but not while another proxy serves. The
// first sync waits for it.
func TestReadEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, begin := prepare(t), make(chan struct{})
		b := &earlyBackend{fakeBackend: r.backend, takes: 3 * time.Minute}
		r.Backend, r.Begin = b, begin
		r.start()
		r.pass(time.Minute)
		if !b.began.IsZero() {
			t.Error("it read while another proxy may write")
		}
		close(begin)
		r.pass(time.Minute)
		if want := r.began.Add(time.Minute); !b.began.Equal(want) {
			t.Errorf("it read at %v, want %v", b.began, want)
		}
		close(r.sources[0].complete)
		r.pass(time.Minute)
		r.wantSyncs("it still reads")
		r.pass(time.Hour)
		r.wantSyncs("it has read", 4*time.Minute)
	})
}

// TestEndWhileReadingEarly does not leave the backend in use.
func TestEndWhileReadingEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := prepare(t)
		b := &earlyBackend{fakeBackend: r.backend, takes: time.Hour}
		r.Backend = b
		r.start()
		r.end()
		r.wantEnd(nil)
		if b.ended.IsZero() {
			t.Error("Run returned before ReadEarly")
		}
		r.wantSyncs("after the end")
	})
}

// TestReadEarlyThatHangs has the early reading hang: the first sync follows nevertheless.
func TestReadEarlyThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := started(t, func(r *run) { r.Backend = &earlyBackend{fakeBackend: r.backend, takes: 1000 * time.Hour} })
		r.pass(time.Hour)
		r.wantSyncs("after its time limit", syncTimeout)
	})
}

// TestFirstSyncOfNothing clears what an earlier process left, even if there is no object at all.
func TestFirstSyncOfNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := started(t)
		r.pass(time.Hour)
		r.wantSyncs("nothing ever changed", 0)
	})
}

func TestFirstChangeAfterQuietIsImmediate(t *testing.T) {
	for _, costs := range []time.Duration{0, 10 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			r := started(t, func(r *run) { r.backend.costs = costs })
			r.pass(time.Second)
			r.change()
			r.wantSyncs("a second after the start", 0, time.Second)
			r.pass(time.Hour)
			r.change()
			r.wantSyncs("an hour later", 0, time.Second, time.Second+time.Hour)
		})
	}
}

func TestCoalesces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := started(t, func(r *run) { r.backend.costs = 10 * time.Second })
		r.change()
		for range 9 {
			r.pass(100 * time.Millisecond)
			r.change()
		}
		r.wantSyncs("within the minimum period", 0, 0)
		r.pass(100 * time.Millisecond)
		r.wantSyncs("after it", 0, 0, time.Second)
		if n := r.services(2); n != 10 {
			t.Errorf("the third plan has %d Services, want 10", n)
		}
		r.pass(time.Hour)
		r.wantSyncs("an hour later", 0, 0, time.Second)
	})
}

// TestPace changes the cluster every 100 ms for 10 s.
func TestPace(t *testing.T) {
	for _, test := range []struct {
		name         string
		min          time.Duration
		takes, costs time.Duration
		// The number of syncs, and the longest time between the end of one and the start of the next.
		syncs int
		gap   time.Duration
	}{
		{"syncs that cost much keep the minimum period", time.Second, 0, 10 * time.Second, 12, time.Second},
		{"a minimum period of 0 never holds back", 0, 50 * time.Millisecond, 10 * time.Second, 101, 100 * time.Millisecond},
		{"syncs that cost little are free", time.Second, 50 * time.Millisecond, 2 * time.Millisecond, 101, 100 * time.Millisecond},
		{"credit of 1 s pays for 50 changes", time.Second, 50 * time.Millisecond, 10 * time.Millisecond, 101, 100 * time.Millisecond},
		// 1 s of credit, and what is earned meanwhile, pays for 21 syncs after the first one. Then one is due every second.
		{"credit comes to an end", time.Second, 0, 50 * time.Millisecond, 31, time.Second},
		{"and is not held back longer than that", 200 * time.Millisecond, 0, 50 * time.Millisecond, 79, 200 * time.Millisecond},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := started(t, func(r *run) {
					r.MinSyncPeriod, r.backend.takes, r.backend.costs = test.min, test.takes, test.costs
				})
				r.pass(test.takes) // the first sync
				for range 100 {
					r.change()
					r.pass(100 * time.Millisecond)
				}
				r.pass(time.Minute)
				times := r.syncs()
				if len(times) != test.syncs {
					t.Errorf("got %d syncs, want %d: %v", len(times), test.syncs, times)
				}
				for i := range times[1:] {
					if gap := times[i+1] - times[i] - test.takes; gap > test.gap {
						t.Errorf("after sync %d at %s the next had to wait for %s, want %s at most", i, times[i], gap, test.gap)
					}
				}
				if n := r.services(len(times) - 1); n != 100 {
					t.Errorf("the last plan has %d Services, want 100", n)
				}
			})
		})
	}
}

// TestChangeDuringSync is taken by the next one, which does not pay for the first one.
func TestChangeDuringSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := started(t, func(r *run) { r.backend.takes, r.backend.costs = 400*time.Millisecond, 10*time.Second })
		r.pass(100 * time.Millisecond)
		r.change()
		r.pass(time.Hour)
		r.wantSyncs("an hour later", 0, 400*time.Millisecond)
		if n := r.services(1); n != 1 {
			t.Errorf("the second plan has %d Services, want 1", n)
		}
	})
}

// TestPlanIsCarriedOn: what did not change is not decided again.
func TestPlanIsCarriedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := started(t)
		var decided []*plan.Service
		for range 2 {
			r.pass(time.Second)
			r.change()
			first, _ := r.latest().Services.Get(cluster.ServiceName{Namespace: "ns", Name: "service-1"})
			decided = append(decided, first)
		}
		if decided[0] == nil || decided[0] != decided[1] {
			t.Errorf("the same Service was decided twice: %p, %p", decided[0], decided[1])
		}
	})
}

func TestBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := started(t, func(r *run) { r.backend.result.Err = errRefused })
		r.pass(20 * time.Second)
		ms := time.Millisecond
		want := []time.Duration{
			0, 100 * ms, 300 * ms, 700 * ms, 1500 * ms, 3100 * ms, 6300 * ms, 10300 * ms, 14300 * ms, 18300 * ms,
		}
		r.wantSyncs("while it fails", want...)

		r.backend.set(func(b *fakeBackend) { b.result.Err = nil })
		r.pass(time.Minute)
		want = append(want, 22300*ms)
		r.wantSyncs("it succeeds and rests", want...)

		r.backend.set(func(b *fakeBackend) { b.result.Err = errRefused })
		r.change()
		r.pass(250 * ms)
		r.wantSyncs("it fails again, from 100 ms", append(want, 80000*ms, 80100*ms)...)
	})
}

// TestBackoffIsBounded tries again at least every sync period.
func TestBackoffIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := started(t, func(r *run) { r.backend.result.Err, r.SyncPeriod = errRefused, time.Second })
		r.pass(4 * time.Second)
		ms := time.Millisecond
		r.wantSyncs("while it fails", 0, 100*ms, 300*ms, 700*ms, 1500*ms, 2500*ms, 3500*ms)
	})
}

// TestBackoffOfCostlySyncs retries a sync that fails after a long time on the processor less often.
func TestBackoffOfCostlySyncs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := started(t, func(r *run) { r.backend.result.Err, r.backend.costs = errRefused, 2*time.Second })
		r.pass(30 * time.Second)
		r.wantSyncs("while it fails", 0, 8*time.Second, 16*time.Second, 24*time.Second)
	})
}

// TestAgain syncs when the backend asks for it, and no later for a change meanwhile.
func TestAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := started(t, func(r *run) { r.backend.result.Again = time.Minute })
		r.pass(90 * time.Second)
		r.wantSyncs("nothing changed", 0, time.Minute)
		r.change()
		r.backend.set(func(b *fakeBackend) { b.result.Again = 0 })
		r.pass(time.Minute)
		r.wantSyncs("after a change", 0, time.Minute, 90*time.Second, 150*time.Second)
		r.pass(time.Hour)
		r.wantSyncs("it asks no more", 0, time.Minute, 90*time.Second, 150*time.Second)
	})
}

// TestChangeDuringBackoff proves that a change, which may be the one that helps, does not wait for the backoff.
func TestChangeDuringBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := started(t, func(r *run) { r.backend.result.Err = errRefused })
		r.pass(11 * time.Second) // the last attempt was at 10.3 s, the next is due at 14.3 s
		before := len(r.syncs())
		r.backend.set(func(b *fakeBackend) { b.result.Err = nil })
		r.change()
		r.pass(time.Hour)
		if got := r.syncs()[before:]; len(got) != 1 || got[0] != 11300*time.Millisecond {
			t.Errorf("got syncs at %v, want one at 11.3s: a minimum period after the last", got)
		}
	})
}

func TestFailureKeepsBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := started(t)
		first := r.Builder.Snapshot()
		r.backend.set(func(b *fakeBackend) { b.result.Err = errRefused })
		r.pass(time.Second)
		r.change()
		r.pass(10 * time.Millisecond)
		r.backend.set(func(b *fakeBackend) { b.result.Err = nil })
		r.pass(time.Minute)
		r.change()
		told := r.observer.synced
		if len(told) != 4 {
			t.Fatalf("got %d syncs, want 4", len(told))
		}
		if !told[0].Applied.First() || told[0].After != first || told[0].Err() != nil {
			t.Errorf("first sync: %+v", told[0])
		}
		if told[1].Applied != nil || !errors.Is(told[1].Err(), errRefused) {
			t.Errorf("failed sync: changes %v; error %v", told[1].Applied, told[1].Err())
		}
		if told[2].Applied.Before != told[0].Plan || told[2].After != told[1].After || told[2].Err() != nil {
			t.Errorf("the sync after the failure starts from %p, want %p; error %v", told[2].Applied.Before, told[0].Plan, told[2].Err())
		}
		if told[3].Applied.Before != told[2].Plan || told[3].Plan != r.latest() {
			t.Errorf("the last sync starts from %p, want %p", told[3].Applied.Before, told[2].Plan)
		}
	})
}

func TestObserversAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := started(t, func(r *run) {
			r.backend.takes, r.backend.costs, r.backend.result = 10*time.Millisecond, 10*time.Second, backend.Result{Rules: 1}
		})
		r.pass(10 * time.Millisecond)
		r.change()
		r.pass(500 * time.Millisecond)
		r.change()
		r.change()
		r.pass(time.Hour)
		if diff := cmp.Diff([]time.Time{r.began.Add(10 * time.Millisecond), r.began.Add(510 * time.Millisecond)}, r.observer.queued); diff != "" {
			t.Errorf("queued (-want +got):\n%s", diff)
		}
		s := r.observer.synced[2]
		got := []time.Duration{s.Started.Sub(r.began), s.Finished.Sub(r.began)}
		if diff := cmp.Diff([]time.Duration{1020 * time.Millisecond, 1030 * time.Millisecond}, got); diff != "" {
			t.Errorf("start and end of the third sync (-want +got):\n%s", diff)
		}
		if len(s.Results) != 2 || s.Results[1].Rules != 1 {
			t.Errorf("results: %+v", s.Results)
		}
	})
}

func TestDrift(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := started(t, func(r *run) { r.CheckPeriod = 10 * time.Second })
		r.pass(9 * time.Second)
		r.backend.set(func(b *fakeBackend) { b.checkErr = errRefused })
		r.pass(time.Second)
		r.wantSyncs("a check that fails finds nothing", 0)
		drift := backend.Drift{Family: cluster.IPv6, What: "a table", Writer: "somebody"}
		r.drifts(drift)
		r.pass(10 * time.Second)
		r.wantSyncs("a drift is found in spite of an error", 0, 20*time.Second)
		r.backend.set(func(b *fakeBackend) { b.drifts, b.checkErr = nil, nil })
		r.pass(time.Minute)
		r.wantSyncs("it is repaired", 0, 20*time.Second)
		if diff := cmp.Diff([]backend.Drift{drift}, r.observer.drifts); diff != "" {
			t.Errorf("drifts told (-want +got):\n%s", diff)
		}
		if r.backend.checks != 8 {
			t.Errorf("got %d checks in 80 s, want 8", r.backend.checks)
		}
	})
}

// TestRequestedChecks uses a backend that asks for checks: the first is made at once, the next ones at the end of a period,
// one that fails is repeated, and without a request there is none.
func TestRequestedChecks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := started(t, func(r *run) {
			r.CheckPeriod, r.backend.modified = 250*time.Millisecond, make(chan struct{}, 1)
		})
		want := func(what string, checks int) {
			t.Helper()
			r.backend.set(func(b *fakeBackend) {
				if b.checks != checks {
					t.Errorf("%s: got %d checks, want %d", what, b.checks, checks)
				}
				b.checks = 0
			})
		}
		r.pass(time.Hour)
		want("one after the start, because rules may have been modified before it", 1)
		r.backend.modified <- struct{}{}
		r.pass(0)
		want("a request", 1)
		for range 12 {
			select {
			case r.backend.modified <- struct{}{}:
			default: // requested already
			}
			r.pass(time.Second / 12)
		}
		r.pass(time.Hour)
		want("twelve requests in a second: one each 250 ms, and one for the last request", 5)
		r.backend.set(func(b *fakeBackend) { b.checkErr = errRefused })
		r.backend.modified <- struct{}{}
		r.pass(10*time.Second - time.Millisecond)
		want("failing checks", 40)
		r.backend.set(func(b *fakeBackend) { b.checkErr = nil })
		r.pass(time.Hour)
		want("the last attempt", 1)
	})
}

// TestCheckThatHangs lets the check for drift hang: a change is programmed within changePatience, whether it comes before the
// check or during it, and the observers are notified of its arrival.
func TestCheckThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := started(t, func(r *run) { r.backend.checkTakes, r.CheckPeriod = time.Hour, 250*time.Millisecond })
		for _, wait := range []time.Duration{100 * time.Millisecond, 3 * time.Second, 17 * time.Second, 5 * time.Second} {
			r.pass(wait)
			changed, before := time.Now(), len(r.syncs())
			r.change()
			r.pass(changePatience + 10*time.Millisecond)
			if synced := len(r.syncs()) - before; synced != 1 {
				t.Errorf("%v after a change at %v: %d syncs, want 1", changePatience, changed.Sub(r.began), synced)
			}
			if last := r.observer.queued[len(r.observer.queued)-1]; !last.Equal(changed) {
				t.Errorf("queued at %v, want %v", last.Sub(r.began), changed.Sub(r.began))
			}
		}
		if n := r.log.count("Drift check failed"); n < 1 || n > 4 {
			t.Errorf("the failure was logged %d times in %v", n, time.Since(r.began))
		}
		if n := r.log.count("changed Services wait"); n < 1 {
			t.Error("no line about an interrupted check")
		}
	})
}

// TestSlowCheck checks that changes do not interrupt a check that takes less than changePatience.
func TestSlowCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := started(t, func(r *run) {
			r.backend.checkTakes, r.CheckPeriod = changePatience-100*time.Millisecond, 250*time.Millisecond
			r.backend.drifts = []backend.Drift{{Family: cluster.IPv4, What: "a chain"}}
		})
		for range 100 {
			r.change()
			r.pass(50 * time.Millisecond)
		}
		if n := r.log.count("Drift check failed"); n > 0 || len(r.observer.drifts) < 2 {
			t.Errorf("%d checks failed, and %d found drift", n, len(r.observer.drifts))
		}
	})
}

// TestQuietLog finds drift, and lets checks and syncs fail with another error each time, four times a second: the log has a
// few lines a minute.
func TestQuietLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := started(t, func(r *run) { r.CheckPeriod = 250 * time.Millisecond })
		for i := range 4 * 60 {
			r.backend.set(func(b *fakeBackend) {
				b.checkErr = fmt.Errorf("the table changed %d times", i)
				b.result.Err = fmt.Errorf("%d elements are missing", i)
				b.drifts = []backend.Drift{{Family: cluster.IPv4, What: fmt.Sprintf("%d elements of a map", i)}}
			})
			r.pass(250 * time.Millisecond)
		}
		for _, message := range []string{"Rules were modified externally", "Drift check failed", "Sync failed"} {
			if n := r.log.count(message); n < 3 || n > 7 {
				t.Errorf("%q was logged %d times in a minute, want about 6", message, n)
			}
		}
		if len(r.observer.drifts) < 200 {
			t.Errorf("observers were told of %d drifts", len(r.observer.drifts))
		}
	})
}

// TestFailingCheckIsLoggedOnce lets the check for drift fail four times a second for ten minutes: it is logged at once, when
// the error changes, after every [logonce.Reminder], and when it has succeeded for a while.
func TestFailingCheckIsLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := started(t, func(r *run) { r.CheckPeriod, r.backend.checkErr = 250*time.Millisecond, errRefused })
		wantLines := func(when string, failures, ends int) {
			t.Helper()
			if f, e := r.log.count("Drift check failed"), r.log.count("Drift check succeeded again"); f != failures || e != ends {
				t.Errorf("%s: got %d lines about failures and %d about their end, want %d and %d", when, f, e, failures, ends)
			}
		}
		r.pass(time.Minute)
		wantLines("after a minute", 1, 0)
		r.pass(10 * time.Minute)
		wantLines("after ten minutes more", 3, 0)
		r.backend.set(func(b *fakeBackend) { b.checkErr = errors.New("another") })
		r.pass(time.Minute)
		wantLines("another error", 4, 0)
		for range 100 { // one check in four fails
			r.backend.set(func(b *fakeBackend) { b.checkErr = nil })
			r.pass(750 * time.Millisecond)
			r.backend.set(func(b *fakeBackend) { b.checkErr = errors.New("another") })
			r.pass(250 * time.Millisecond)
		}
		wantLines("it fails now and then", 4, 0)
		r.backend.set(func(b *fakeBackend) { b.checkErr = nil })
		r.pass(10 * time.Minute)
		wantLines("it succeeds", 4, 1)
	})
}

// TestFailingSyncIsLoggedOnce lets syncs fail for ten minutes, in which the proxy tries about 25 times.
func TestFailingSyncIsLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := started(t, func(r *run) { r.backend.result.Err = errRefused })
		r.pass(10*time.Minute - time.Second)
		if n := r.log.count("Sync failed"); n != 2 {
			t.Errorf("the failure was logged %d times in ten minutes, want twice", n)
		}
		r.backend.set(func(b *fakeBackend) { b.result.Err = nil })
		r.pass(time.Minute)
		if n := r.log.count("Sync succeeded again"); n != 1 {
			t.Errorf("the success was logged %d times, want once", n)
		}
	})
}

// TestObservers checks that each Observer is called, and that it may ignore what it likes.
func TestObservers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var syncs syncCounter
		var drifts driftCounter
		r := started(t, func(r *run) {
			r.CheckPeriod = 10 * time.Second
			r.Observers = append(r.Observers, &syncs, &drifts)
		})
		r.pass(time.Second)
		r.change()
		r.drifts(backend.Drift{Family: cluster.IPv4})
		r.pass(10 * time.Second)
		if syncs.n != 3 || drifts.n != 1 || len(r.observer.queued) != 1 || len(r.observer.drifts) != 1 {
			t.Errorf("got %d syncs and %d drifts, and %d changes and %d drifts of another Observer; want 3, 1, 1 and 1",
				syncs.n, drifts.n, len(r.observer.queued), len(r.observer.drifts))
		}
	})
}

func TestNoChecks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := started(t)
		r.pass(24 * time.Hour)
		if r.backend.checks != 0 {
			t.Errorf("got %d checks with a period of 0", r.backend.checks)
		}
	})
}

func TestEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := started(t)
		r.end()
		r.wantEnd(nil)
		r.change()
		r.wantSyncs("after the end", 0)
	})
}

func TestEndBeforeComplete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := prepare(t)
		r.start()
		r.end()
		r.wantEnd(nil)
		r.wantSyncs("nothing was complete")
	})
}

// TestEndDuringSync lets the sync go on to its end.
func TestEndDuringSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := started(t, func(r *run) { r.backend.takes = 10 * time.Second })
		r.pass(time.Second)
		r.change()
		r.end()
		r.pass(time.Second)
		if len(r.ended) > 0 {
			t.Error("Run ended before its sync")
		}
		r.wantEnd(nil)
		if took := time.Since(r.began); took != 10*time.Second {
			t.Errorf("Run ended after %s, want 10s", took)
		}
		if told := r.observer.synced; len(told) != 1 || told[0].Err() != nil {
			t.Errorf("the sync was not finished: %+v", told)
		}
	})
}

// TestSyncThatHangs is given up at last, and tried again.
func TestSyncThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := started(t, func(r *run) { r.backend.hangs = true })
		r.pass(syncTimeout)
		if told := r.observer.synced; len(told) != 1 || !errors.Is(told[0].Err(), context.DeadlineExceeded) {
			t.Fatalf("got %+v, want one sync that ran out of time", told)
		}
		r.backend.set(func(b *fakeBackend) { b.hangs = false })
		r.pass(syncTimeout)
		r.wantSyncs("after the first", 0, syncTimeout+firstRetry)
	})
}

func TestSourceFails(t *testing.T) {
	for _, complete := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			r := prepare(t)
			if complete {
				close(r.sources[0].complete)
			}
			r.sources = append(r.sources, newSource())
			r.start()
			r.sources[1].fail <- errRefused
			r.wantEnd(errRefused)
		})
	}
}

// TestSyncIsLoggedInKeys proves that the line of a sync has durations and counts, and no Go structs.
func TestSyncIsLoggedInKeys(t *testing.T) {
	began := time.Unix(0, 0)
	s := &Sync{Started: began, Finished: began.Add(5 * time.Millisecond), After: cluster.NewBuilder("n").Snapshot(), Results: []backend.Result{
		{Family: cluster.IPv4, Duration: 2 * time.Millisecond, Read: true, Elements: 3, Rules: 1},
		{Family: cluster.IPv6, Duration: 3 * time.Millisecond, Elements: 4, Refused: make([]backend.Refusal, 2)},
	}}
	want := []any{"took", 5 * time.Millisecond, "services", 0, "tookIPv4", 2 * time.Millisecond, "tookIPv6", 3 * time.Millisecond,
		"elementsWritten", 7, "rulesWritten", 1, "refusedPorts", 2, "familiesRead", 1}
	if diff := cmp.Diff(want, s.logged()); diff != "" {
		t.Errorf("keys and values (-want +got):\n%s", diff)
	}
}

// TestFight has another program modify the rules all the time: the first repairs come at once, the later ones every few
// seconds, or less often if they cost much; after a quiet minute they come at once again.
func TestFight(t *testing.T) {
	for cost, most := range map[time.Duration]int{time.Millisecond: 160, 5 * time.Second: 36} {
		t.Run(cost.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := started(t, func(r *run) {
					r.CheckPeriod, r.MinSyncPeriod, r.backend.costs = 250*time.Millisecond, time.Second, cost
				})
				drifts := []backend.Drift{{Family: cluster.IPv4, What: "a table", Writer: "somebody"}}
				r.pass(time.Minute)
				before := len(r.syncs())
				r.drifts(drifts...)
				r.pass(10 * time.Minute)
				if n := len(r.syncs()) - before; n < most/2 || n > most {
					t.Errorf("%d repairs in ten minutes, want up to %d", n, most)
				}
				r.drifts()
				r.pass(2 * time.Minute)
				before = len(r.syncs())
				r.drifts(drifts...)
				r.pass(250 * time.Millisecond)
				r.drifts()
				r.pass(time.Second)
				if n := len(r.syncs()) - before; n != 1 {
					t.Errorf("%d repairs within a second after a quiet minute, want 1", n)
				}
			})
		})
	}
}

// TestCostlyRepairs lets a firewall flush three tables within seconds: although repairs are expensive, each is repaired soon.
func TestCostlyRepairs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := started(t, func(r *run) {
			r.CheckPeriod, r.MinSyncPeriod, r.backend.costs = 250*time.Millisecond, 10*time.Millisecond, 5*time.Second
		})
		r.pass(2 * time.Minute)
		for i, table := range []string{"mangle", "nat", "filter"} {
			before := len(r.syncs())
			r.drifts(backend.Drift{Family: cluster.IPv4, What: table})
			r.pass(250 * time.Millisecond)
			r.drifts()
			r.pass(time.Duration(i) * 2 * time.Second)
			if n := len(r.syncs()) - before; n != 1 {
				t.Errorf("%s: %d repairs, want 1", table, n)
			}
		}
	})
}

// TestRepairBeforeMinimumPeriod damages the rules right after a sync that cost much: the repair does not wait for the minimum period,
// unless the sync failed.
func TestRepairBeforeMinimumPeriod(t *testing.T) {
	for _, fails := range []bool{false, true} {
		t.Run(fmt.Sprint(fails), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := started(t, func(r *run) {
					r.CheckPeriod, r.MinSyncPeriod, r.SyncPeriod, r.backend.costs = 250*time.Millisecond, time.Minute, time.Hour, 10*time.Second
				})
				if fails {
					r.pass(2 * time.Minute)
					r.backend.set(func(b *fakeBackend) { b.result.Err = errRefused })
					r.change()
					r.pass(100 * time.Millisecond)
				}
				before := len(r.syncs())
				r.drifts(backend.Drift{Family: cluster.IPv4, What: "a table"})
				r.pass(250 * time.Millisecond)
				want := 1
				if fails {
					want = 0
				}
				if n := len(r.syncs()) - before; n != want {
					t.Errorf("%d repairs, want %d", n, want)
				}
			})
		})
	}
}

// TestRepairPostponesNothing finds modifications while a sync is due that a backend asked for: it is not later because of them,
// although repairs are delayed by then.
func TestRepairPostponesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := started(t, func(r *run) { r.CheckPeriod, r.MinSyncPeriod = 100*time.Millisecond, 10*time.Millisecond })
		r.pass(2 * time.Minute)
		r.drifts(backend.Drift{Family: cluster.IPv4, What: "a table"})
		r.pass(30 * time.Second) // repairs are some seconds apart
		r.backend.set(func(b *fakeBackend) { b.result.Again = 500 * time.Millisecond })
		r.change()
		r.pass(20 * time.Millisecond)
		before := len(r.syncs())
		r.pass(520 * time.Millisecond)
		if n := len(r.syncs()) - before; n != 1 {
			t.Errorf("%d syncs in 520 ms, want 1", n)
		}
	})
}

// TestChangePostponesNoRepair changes a Service while a repair is due: it does not wait for the minimum period of the change.
func TestChangePostponesNoRepair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := started(t, func(r *run) {
			r.CheckPeriod, r.MinSyncPeriod, r.backend.costs = 100*time.Millisecond, 30*time.Second, 10*time.Second
		})
		r.pass(time.Minute)
		r.drifts(backend.Drift{Family: cluster.IPv4, What: "a table"})
		r.pass(100 * time.Millisecond) // repaired at once; the next repair has a delay
		r.pass(100 * time.Millisecond)
		r.drifts()
		before := len(r.syncs())
		r.change()
		r.pass(5 * time.Second)
		if n := len(r.syncs()) - before; n != 1 {
			t.Errorf("%d syncs within 5 s, want the repair", n)
		}
	})
}

// TestRepairsOfFamilies damages the rules of both families, one after the other: although repairs are expensive, the second one is
// not held back by the first.
func TestRepairsOfFamilies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := started(t, func(r *run) {
			r.CheckPeriod, r.MinSyncPeriod, r.backend.costs = 250*time.Millisecond, 10*time.Millisecond, 5*time.Second
		})
		r.pass(2 * time.Minute)
		before := len(r.syncs())
		for i, family := range []cluster.Family{cluster.IPv4, cluster.IPv6} {
			r.drifts(backend.Drift{Family: family, What: "a table"})
			r.pass(250 * time.Millisecond)
			r.drifts()
			r.pass(time.Second)
			if n := len(r.syncs()) - before; n != i+1 {
				t.Errorf("%d repairs within a second after a damage of %s, want %d", n, family, i+1)
			}
		}
	})
}

// TestAudit has the backend compare rules in 31 parts of 50 ms, as nftables mode does with 250,000 elements: it takes less than
// 2 s, and a change in the middle is programmed after one part at most.
func TestAudit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const parts = 31
		r := started(t, func(r *run) {
			r.CheckPeriod, r.MinSyncPeriod, r.backend.parts = 250*time.Millisecond, 10*time.Millisecond, parts
		})
		r.pass(time.Second)
		before := len(r.syncs())
		r.change()
		r.pass(50 * time.Millisecond)
		if n := len(r.syncs()) - before; n != 1 {
			t.Errorf("%d syncs within 50 ms of a change, want 1", n)
		}
		r.pass(950 * time.Millisecond)
		if r.backend.CheckSoon() {
			t.Errorf("only %d of %d parts within 2 s", r.backend.count(), parts)
		}
		at := r.backend.count()
		r.pass(10 * time.Second)
		if n := r.backend.count() - at; n < 39 || n > 41 {
			t.Errorf("%d checks in 10 s after the audit, want 40", n)
		}
	})
}
