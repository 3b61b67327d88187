//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"sync"
	"time"

	"github.com/seed-11a05479/kube-proxy/test/bench/synthetic"
)

// plan is the amount of measurements.
type plan struct {
	// changes is the number of changes of each kind; rates (changes a second) and churn (duration) describe the churn.
	changes int
	rates   []int
	churn   time.Duration
	// pods is the number of pods that a rolling update replaces, resting the duration of each measurement of the idle cost.
	pods    int
	resting time.Duration
	// details is the largest number of Services for which established traffic, idle cost and rolling updates are measured.
	details int
	// until is the time limit; measurements after it are skipped.
	until time.Time
}

// stepLimit is the time limit of a change or a start. seriesLimit is the time after which the changes of a kind end, even if
// fewer than planned were measured, but at least leastChanges.
const (
	stepLimit, seriesLimit = 10 * time.Minute, 45 * time.Second
	leastChanges           = 5
)

// over reports whether the time limit has passed.
func (p *plan) over() bool { return !time.Now().Before(p.until) }

// deadline returns the time limit of an operation that starts now.
func (p *plan) deadline() time.Time {
	if soon := time.Now().Add(stepLimit); soon.Before(p.until) {
		return soon
	}
	return p.until
}

// bench measures one program with one cluster.
type bench struct {
	*plan
	*world
	run     *Run
	program string
	process *process
	prober  *prober
	// bare are the lower bounds of measurements.
	bare bareCost
	say  func(format string, args ...any)
}

// measure measures everything. After an error it returns the results so far.
func (p *plan) measure(program, mode string, size synthetic.Size, say func(string, ...any)) (_ *Run, err error) {
	run := newRun(program, mode, size)
	if p.over() {
		run.note("everything: skipped, time limit reached")
		return run, nil
	}
	w, err := newWorld(size)
	if err != nil {
		return run, err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	b := &bench{plan: p, world: w, run: run, program: program, say: say, prober: &prober{from: w.asker}}
	steps := []struct {
		name string
		do   func() error
		most int // the largest number of Services that it is measured with
	}{
		{"connect time without a proxy", b.connectFloor, anySize}, {"bare cost", func() error { return b.bareCosts(b.changes, run.add) }, anySize},
		{"cold start", b.coldStart, anySize}, {"changes", b.endpointChanges, anySize}, {"new and deleted Services", b.serviceChanges, anySize},
		{"connect time", b.connectTime, anySize}, {"established traffic", b.traffic, b.details}, {"idle cost", b.idleCost, b.details},
		{"rolling updates", b.rollingUpdates, b.details}, {"churn", b.churns, anySize}, {"restarts", b.restarts, anySize},
		{"default settings", b.defaultSettings, mostDefaults},
	}
	for _, step := range steps {
		if size.Services > step.most {
			continue
		}
		if p.over() {
			run.note("%s: skipped, time limit reached", step.name)
			continue
		}
		b.say("%s", step.name)
		err := b.settle()
		if err == nil {
			err = step.do()
		}
		switch {
		case err != nil && p.over():
			run.note("%s: not completed in time: %v", step.name, err)
		case err != nil:
			run.Failed = step.name + ": " + err.Error()
			return run, fmt.Errorf("%s %s %s: %s: %w", program, mode, size, step.name, err)
		}
	}
	return run, nil
}

// anySize is for steps that are measured with every cluster.
const anySize = math.MaxInt

// settle waits until the proxy has done its work, so that this is not measured together with what follows.
func (b *bench) settle() error {
	if b.process == nil {
		return nil
	}
	_, err := b.process.rest(b.deadline())
	return err
}

// launch starts the proxy, with additional lines in its configuration.
func (b *bench) launch(lines ...string) error {
	config, err := b.configure(b.run.Mode, lines...)
	if err != nil {
		return err
	}
	if b.process, err = b.start(b.program, config); err == nil {
		b.prober.alive = b.process.alive
	}
	return err
}

// wait probes a Service until it answers as wanted. It returns early if the proxy exits.
func (b *bench) wait(service int, begin func() (time.Time, func(netip.Addr) bool)) (time.Duration, error) {
	return b.prober.untilAnswered(synthetic.VIP(service), b.deadline(), begin)
}

// anyEndpoint accepts an answer from any endpoint.
func anyEndpoint(netip.Addr) bool { return true }

func (b *bench) coldStart() error {
	kernel, err := kernelMemory()
	if err != nil {
		return err
	}
	sent := b.Sent()
	before, err := ownCPU()
	if err != nil {
		return err
	}
	if err := b.launch(atOnce(b.run.Mode)); err != nil {
		return err
	}
	took, err := b.wait(b.last(), func() (time.Time, func(netip.Addr) bool) { return b.process.started, anyEndpoint })
	if err != nil {
		return err
	}
	around, err := ownCPU()
	if err != nil {
		return err
	}
	b.run.add("cold start", "ms", milliseconds(took))
	b.multiple("cold start", took, b.bare.read+b.bare.write)
	rested, err := b.process.rest(b.deadline())
	if err != nil {
		return err
	}
	used, err := b.process.cpu()
	if err != nil {
		return err
	}
	b.run.add("cold start, until idle", "ms", milliseconds(rested.Sub(b.process.started)))
	b.run.add("cold start, CPU", "ms", milliseconds(used))
	b.run.add("cold start, CPU of API server and probes", "ms", milliseconds(around-before))
	kernelNow, err := kernelMemory()
	if err != nil {
		return err
	}
	b.run.add("kernel memory", "MB", megabytes(kernelNow-kernel))
	b.run.add("API server sent", "MB", megabytes(b.Sent()-sent))
	return b.memory("cold start")
}

// memory adds the resident memory of the process.
func (b *bench) memory(when string) error {
	now, peak, err := b.process.memory()
	b.run.add("memory after "+when, "MB", megabytes(now))
	b.run.add("peak memory, "+when, "MB", megabytes(peak))
	return err
}

// idle measures the CPU use of the proxy without changes, as a fraction of a core.
func (b *bench) idle() (float64, error) {
	if err := b.settle(); err != nil {
		return 0, err
	}
	used, passed, err := b.process.cpuDuring(func() error { time.Sleep(2 * time.Second); return nil })
	return float64(used) / float64(passed), err
}

// series measures up to most changes one after another, with a pause after each, and the CPU time of each.
func (b *bench) series(name string, most int, one func(turn int) (time.Duration, error)) error {
	idle, err := b.idle()
	if err != nil {
		return err
	}
	var took []time.Duration
	used, passed, err := b.process.cpuDuring(func() error {
		start := time.Now()
		for turn := 0; turn < most && (turn < leastChanges || time.Since(start) < seriesLimit) && !b.over(); turn++ {
			d, err := one(turn)
			if err != nil {
				return err
			}
			took = append(took, d)
			b.pause()
		}
		return nil
	})
	if err != nil {
		return err
	}
	if len(took) < most {
		b.run.note("%s: only %d of %d, time limit reached", name, len(took), most)
	}
	if len(took) == 0 {
		return nil
	}
	b.run.spread(name, "ms", took)
	used = max(0, used-time.Duration(idle*float64(passed)))
	b.run.add(name+", CPU each", "ms", milliseconds(used)/float64(len(took)))
	return nil
}

// pause sleeps for about 50 ms. The time is random, so that changes do not synchronize with timers.
func (b *bench) pause() { time.Sleep(40*time.Millisecond + rand.N(20*time.Millisecond)) }

// replaceEndpoint replaces an endpoint of a Service and waits for an answer from the new one.
func (b *bench) replaceEndpoint(turn int) (time.Duration, error) {
	service := b.target(turn)
	return b.wait(service, func() (time.Time, func(netip.Addr) bool) {
		start := time.Now()
		fresh := b.ReplaceEndpoint(service)
		return start, func(by netip.Addr) bool { return by == fresh }
	})
}

func (b *bench) endpointChanges() error {
	if err := b.series("endpoint change", b.changes, b.replaceEndpoint); err != nil {
		return err
	}
	b.multipleOf("endpoint change, p50", b.bare.endpoint)
	return nil
}

func (b *bench) serviceChanges() error {
	var made []int
	err := b.series("new service", b.changes, func(int) (time.Duration, error) {
		// The address is known in advance, so that the probes can start at once.
		next := b.Next()
		return b.wait(next, func() (time.Time, func(netip.Addr) bool) {
			start := time.Now()
			made = append(made, b.Create())
			return start, anyEndpoint
		})
	})
	if err != nil {
		return err
	}
	b.multipleOf("new service, p50", b.bare.service)
	return b.series("deleted service", len(made), func(turn int) (time.Duration, error) {
		return b.prober.untilSilent(synthetic.VIP(made[turn]), b.deadline(), func() time.Time {
			start := time.Now()
			b.Delete(made[turn])
			return start
		})
	})
}

func (b *bench) churns() error {
	for _, rate := range b.rates {
		if err := b.churnAt(rate); err != nil {
			return err
		}
	}
	return nil
}

// churnAt replaces endpoints all over the cluster at a steady rate.
func (b *bench) churnAt(rate int) error {
	others := max(1, b.Size().Services-synthetic.Targets)
	return b.while(fmt.Sprintf("churn of %d/s", rate), func(ctx context.Context) (changed int) {
		ctx, cancel := context.WithTimeout(ctx, b.churn)
		defer cancel()
		steadily(ctx, rate, func(n int) bool {
			b.ReplaceEndpoint(n * 7919 % others)
			changed = n + 1
			return true
		})
		return changed
	})
}

// while measures the proxy while work makes changes that probes cannot see; work returns their number. Now and then it
// makes a change that probes can see. The time until they see it is the delay of the proxy. Its CPU use is that for all these
// changes, and its memory the most at these moments.
func (b *bench) while(name string, work func(ctx context.Context) (changed int)) error {
	if b.over() {
		b.run.note("%s: skipped, time limit reached", name)
		return nil
	}
	if err := b.settle(); err != nil {
		return err
	}
	ctx, cancel := context.WithDeadline(context.Background(), b.deadline())
	defer cancel()
	var changed int
	var behind []time.Duration
	var peak int64
	used, passed, err := b.process.cpuDuring(func() error {
		var wg sync.WaitGroup
		defer wg.Wait()
		defer cancel()
		wg.Go(func() {
			defer cancel()
			changed = work(ctx)
		})
		for turn := 0; turn == 0 || ctx.Err() == nil; turn++ {
			d, err := b.replaceEndpoint(turn)
			now, _, memoryErr := b.process.memory()
			if err := errors.Join(err, memoryErr); err != nil {
				return err
			}
			behind, peak = append(behind, d), max(peak, now)
			time.Sleep(100*time.Millisecond + rand.N(50*time.Millisecond))
		}
		return nil
	})
	if err != nil {
		return err
	}
	b.run.spread(name+", delay", "ms", behind)
	b.run.add(name+", actual rate", "1/s", float64(changed+len(behind))/passed.Seconds())
	b.run.add(name+", CPU", "% of a core", 100*float64(used)/float64(passed))
	b.run.add(name+", memory", "MB", megabytes(peak))
	return nil
}

func (b *bench) restarts() error {
	if err := b.restartUnchanged(); err != nil {
		return err
	}
	if err := b.process.stop(); err != nil {
		return err
	}
	service := b.target(0)
	fresh := b.ReplaceEndpoint(service)
	if err := b.launch(atOnce(b.run.Mode)); err != nil {
		return err
	}
	took, err := b.wait(service, func() (time.Time, func(netip.Addr) bool) {
		return b.process.started, func(by netip.Addr) bool { return by == fresh }
	})
	if err != nil {
		return err
	}
	b.run.add("restart with one change", "ms", milliseconds(took))
	b.multiple("restart with one change", took, b.bare.read+b.bare.dump)
	_, err = b.process.rest(b.deadline())
	return errors.Join(err, b.memory("restart"))
}

// restartUnchanged restarts the proxy, and meanwhile opens connections continuously.
func (b *bench) restartUnchanged() error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var lost, made int
	var asking error
	var wg sync.WaitGroup
	wg.Go(func() { made, lost, asking = b.connectMeanwhile(ctx) })
	defer wg.Wait()
	defer cancel()
	watches := b.Watches()
	if err := b.process.stop(); err != nil {
		return err
	}
	generation, err := b.kernel.Generation()
	if err != nil {
		return err
	}
	for b.Watches() > 0 && !b.over() { // until the server has closed them
		time.Sleep(time.Millisecond)
	}
	if err := b.launch(atOnce(b.run.Mode)); err != nil {
		return err
	}
	// Watches start after the lists, so from here on the proxy only has to process them and become idle.
	for deadline := b.deadline(); b.Watches() < watches; time.Sleep(5 * time.Millisecond) {
		if err := b.process.alive(); err != nil || time.Now().After(deadline) {
			return errors.Join(errors.New("the restarted proxy has no watches"), err)
		}
	}
	rested, err := b.process.rest(b.deadline())
	if err != nil {
		return err
	}
	now, err := b.kernel.Generation()
	if err != nil {
		return err
	}
	used, err := b.process.cpu()
	if err != nil {
		return err
	}
	cancel()
	wg.Wait()
	b.run.add("restart, until idle", "ms", milliseconds(rested.Sub(b.process.started)))
	b.run.add("restart, CPU", "ms", milliseconds(used))
	b.run.add("restart, nf_tables transactions", "", float64(now.Since(generation)))
	b.run.add("restart, connections lost", "", float64(lost))
	b.run.add("restart, connections made", "", float64(made))
	return asking
}

// connectMeanwhile opens connections until the context is done, and counts them and those that were not answered. Nobody else may
// use the prober meanwhile. The last connections are made while the proxy
// is idle, so their answers are not awaited.
func (b *bench) connectMeanwhile(ctx context.Context) (made, lost int, err error) {
	to := synthetic.VIP(b.last())
	err = b.prober.run(func() error {
		for ; ctx.Err() == nil; made++ {
			if err := b.prober.step(to, 5*time.Millisecond, func(_ attempt, by netip.Addr) {
				if !by.IsValid() {
					lost++
				}
			}); err != nil {
				return err
			}
		}
		return nil
	})
	return made, lost, err
}

// defaultSettings measures the change of an endpoint with the default minSyncPeriod.
func (b *bench) defaultSettings() error {
	if err := b.process.stop(); err != nil {
		return err
	}
	if err := b.launch(); err != nil {
		return err
	}
	if _, err := b.replaceEndpoint(0); err != nil { // after this the proxy is ready
		return err
	}
	return b.series("endpoint change, default settings", b.changes, b.replaceEndpoint)
}
