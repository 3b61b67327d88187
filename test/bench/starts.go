//go:build linux

package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/seed-11a05479/kube-proxy/test/bench/synthetic"
)

// measureStarts measures cold starts and restarts, and their bare cost: each program in turn, o.starts times, with medians in
// the report. A cold start begins without rules. A restart begins with the rules of the start before it, and one changed
// endpoint. After an error the report has the medians of what was measured so far.
func (o *options) measureStarts(report *Report) error {
	for _, mode := range o.modes {
		for _, size := range mode.sizes {
			if err := o.measureStartsOf(report, mode, size); err != nil {
				return fmt.Errorf("%s %s: %w", mode.name, size, err)
			}
		}
	}
	return nil
}

// measureStartsOf measures one mode with one cluster.
func (o *options) measureStartsOf(report *Report, mode *mode, size synthetic.Size) (err error) {
	mode.plan.until = time.Now().Add(o.within)
	w, err := newWorld(size)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	var all []*starter
	for i, program := range o.programs {
		run := newRun(program, mode.name, size)
		run.Amount = fmt.Sprintf("%d cold starts and restarts; medians", o.starts)
		b := &bench{plan: &mode.plan, world: w, run: run, program: program, prober: &prober{from: w.asker}}
		all = append(all, &starter{bench: b, number: i, values: map[string][]float64{}, profiles: o.profiles})
		report.Runs = append(report.Runs, run)
	}
	defer func() {
		for _, s := range all {
			s.report(all[0])
		}
		report.Machine.LoadAfter = word("/proc/loadavg")
	}()
	for range o.starts {
		if err := all[0].bareCosts(0, all[0].add); err != nil {
			return err
		}
		for _, s := range all {
			if err := s.turn(); err != nil {
				return fmt.Errorf("%s: %w", s.program, err)
			}
		}
	}
	return nil
}

// starter measures the starts of one program with one cluster.
type starter struct {
	*bench
	// number is that of the program, turns that of its turns so far: both are in the names of the profiles.
	number, turns int
	// figures are in the order of the report; values are their values in each start.
	figures []Figure
	values  map[string][]float64
	// profiles is the folder for the profiles of each start; empty if there are none.
	profiles string
}

// cleanupLimit is the time within which Services must not answer any more after --cleanup: the next cold start needs that.
const cleanupLimit = 10 * time.Second

const coldStart, restart = "cold start", "restart with one change"

// turn measures a cold start and a restart, and removes the rules.
func (s *starter) turn() error {
	err := s.one(coldStart, func() (service int, answered func(netip.Addr) bool) { return s.last(), anyEndpoint })
	if err != nil {
		return err
	}
	err = s.one(restart, func() (service int, answered func(netip.Addr) bool) {
		service = s.target(s.turns)
		fresh := s.ReplaceEndpoint(service)
		return service, func(by netip.Addr) bool { return by == fresh }
	})
	if err != nil {
		return err
	}
	if out, err := s.node.Command(s.program, "--cleanup").CombinedOutput(); err != nil {
		return fmt.Errorf("%s --cleanup: %w\n%s", s.program, err, out)
	}
	s.turns++
	s.prober.alive = nil // it has been stopped
	if _, err := s.prober.untilSilent(synthetic.VIP(s.last()), time.Now().Add(cleanupLimit), time.Now); err != nil {
		return fmt.Errorf("%s --cleanup left rules: %w", s.program, err)
	}
	return nil
}

// one starts the program, waits until the Service answers and until the program is idle, and stops it.
func (s *starter) one(kind string, prepare func() (service int, answered func(netip.Addr) bool)) error {
	service, answered := prepare()
	lines := []string{atOnce(s.run.Mode)}
	if s.profiles != "" {
		lines = append(lines, "enableProfiling: true")
	}
	if err := s.launch(lines...); err != nil {
		return err
	}
	profiled := make(chan error, 1)
	go func() { profiled <- s.profile(strings.Fields(kind)[0]) }()
	took, err := s.wait(service, func() (time.Time, func(netip.Addr) bool) { return s.process.started, answered })
	if err != nil {
		return err
	}
	rested, err := s.process.rest(s.deadline())
	if err != nil {
		return err
	}
	used, err := s.process.cpu()
	if err != nil {
		return err
	}
	now, peak, err := s.process.memory()
	if err != nil {
		return err
	}
	s.add(kind, "ms", milliseconds(took))
	s.add(kind+", until idle", "ms", milliseconds(rested.Sub(s.process.started)))
	s.add(kind+", CPU", "ms", milliseconds(used))
	s.add("memory after "+kind, "MB", megabytes(now))
	s.add("peak memory, "+kind, "MB", megabytes(peak))
	return errors.Join(<-profiled, s.process.stop())
}

// add adds a value of one start.
func (s *starter) add(name, unit string, value float64) {
	if s.values[name] == nil {
		s.figures = append(s.figures, Figure{Name: name, Unit: unit})
	}
	s.values[name] = append(s.values[name], value)
}

// report adds the medians to the run, and compares them with those of the bare costs, which are among the values of bare.
func (s *starter) report(bare *starter) {
	for _, f := range s.figures {
		f.Value, f.Count = s.median(f.Name), len(s.values[f.Name])
		s.run.Figures = append(s.run.Figures, f)
		least := bare.median(bareRead)
		switch f.Name {
		case coldStart:
			least += bare.median(bareWrite)
		case restart:
			least += bare.median(bareDump)
		default:
			continue
		}
		if least > 0 {
			s.run.add(f.Name+", compared with bare cost", "times", f.Value/least)
		}
	}
}

// median returns the median of a figure; 0 if it was not measured.
func (s *starter) median(name string) float64 { return quantile(s.values[name], 0.5) }

// profileTime is how long the processor's profile lasts, from the start of the metrics server.
const profileTime = 4 * time.Second

// profile writes the profile of a start's processor time, and that of its heap when the process was largest.
func (s *starter) profile(kind string) error {
	if s.profiles == "" {
		return nil
	}
	ended := make(chan error, 1)
	name := filepath.Join(s.profiles, fmt.Sprintf("%s-%s-%d-%s-%d.", s.run.Mode, s.run.Size, s.number, kind, s.turns))
	go func() {
		content, err := s.fetch(s.process, fmt.Sprintf("profile?seconds=%.0f", profileTime.Seconds()))
		ended <- errors.Join(err, os.WriteFile(name+"cpu", content, 0o644))
	}()
	var largest int64
	var heap []byte
	for {
		select {
		case err := <-ended:
			return errors.Join(err, os.WriteFile(name+"heap", heap, 0o644))
		case <-time.After(20 * time.Millisecond):
		}
		now, _, err := s.process.memory()
		if err != nil || now < largest+largest/20 {
			continue
		}
		if page, err := s.fetch(s.process, "heap"); err == nil {
			heap, largest = page, now
		}
	}
}

// fetch returns a page of net/http/pprof that a process on the node serves. It waits for the server.
func (w *world) fetch(from *process, page string) ([]byte, error) {
	client := http.Client{Transport: &http.Transport{DialContext: w.node.Dial, DisableKeepAlives: true}, Timeout: time.Minute}
	for {
		response, err := client.Get("http://127.0.0.1:10249/debug/pprof/" + page)
		if err != nil {
			if dead := from.alive(); dead != nil {
				return nil, dead
			}
			time.Sleep(time.Millisecond)
			continue
		}
		content, err := io.ReadAll(response.Body)
		err = errors.Join(err, response.Body.Close())
		if err == nil && response.StatusCode != http.StatusOK {
			err = fmt.Errorf("read the profile %s: %s: %s", page, response.Status, content)
		}
		return content, err
	}
}
