//go:build linux

package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/seed-11a05479/kube-proxy/test/bench/synthetic"
	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// options are the command line.
type options struct {
	programs []string
	modes    []*mode
	folder   string
	// within is the time limit for the first program in total; peerWithin that for each other program in one mode and
	// with one cluster.
	within, peerWithin time.Duration
	// starts is the number of starts to measure, and nothing else; 0 to measure everything. profiles is the folder for
	// their profiles; empty if there are none.
	starts   int
	profiles string
	// rules are rulesets to compare, and nothing else: see compareRules. rounds is the number of rounds for each in each namespace.
	rules  []string
	rounds int
	// fastPath are two Services to compare, and fastPathServe is the address to serve them on, and nothing else.
	fastPath      []string
	fastPathServe string
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	o, err := parse(args)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	switch {
	case o.fastPathServe != "":
		listener, err := net.Listen("tcp", o.fastPathServe)
		if err != nil {
			return err
		}
		return serveFastPath(listener)
	case len(o.fastPath) > 0:
		return measureFastPath(os.Stdout, func(address string) (net.Conn, error) { return net.DialTimeout("tcp", address, fastPathLimit) }, o.fastPath, o.rounds)
	}
	if err := netns.Check("nft"); err != nil {
		return err
	}
	if len(o.rules) > 0 {
		return o.compareRules(os.Stdout)
	}
	for _, program := range o.programs {
		if _, err := os.Stat(program); err != nil {
			return fmt.Errorf("%w: run make build to build bin/kube-proxy, or use -proxy and -peer", err)
		}
	}
	report := &Report{Machine: Machine{
		Time: time.Now().UTC().Format(time.RFC3339), Kernel: word("/proc/sys/kernel/osrelease"),
		Cores: runtime.NumCPU(), LoadBefore: word("/proc/loadavg"),
	}, Versions: map[string]string{}}
	for _, program := range o.programs {
		out, err := exec.Command(program, "--version").Output()
		if err != nil {
			return fmt.Errorf("%s --version: %w", program, err)
		}
		report.Versions[program] = strings.TrimSpace(string(out))
	}
	if o.starts > 0 {
		return errors.Join(o.measureStarts(report), report.save(o.folder), report.write(os.Stdout))
	}
	return errors.Join(o.measure(report), report.write(os.Stdout))
}

// measure measures everything. It measures the programs alternately, so that the machine's load affects them equally.
func (o *options) measure(report *Report) error {
	var failed []error
	left := o.within
	for _, mode := range o.modes {
		stuck := unstarted{}
		for _, size := range mode.sizes {
			for i, program := range o.programs {
				if run := stuck.skip(program, mode, size); run != nil {
					report.Runs = append(report.Runs, run)
					continue
				}
				begun, limit := time.Now(), left
				if i > 0 {
					limit = o.peerWithin
				}
				say := func(format string, args ...any) {
					fmt.Fprintf(os.Stderr, "%6.1f s  %s %s %s: %s\n", time.Since(begun).Seconds(), program, mode.name, size, fmt.Sprintf(format, args...))
				}
				mode.plan.until = begun.Add(limit)
				result, err := mode.plan.measure(program, mode.name, size, say)
				failed = append(failed, err)
				if i == 0 {
					left -= time.Since(begun)
				}
				result.Amount = mode.amount.String()
				stuck.note(program, size, result)
				report.Runs = append(report.Runs, result)
				report.Machine.LoadAfter = word("/proc/loadavg")
				failed = append(failed, report.save(o.folder)) // so that a later failure does not lose the results
			}
		}
	}
	return errors.Join(failed...)
}

// unstarted has the cluster with which a program did not complete a cold start in its time, in one mode.
type unstarted map[string]synthetic.Size

// note records whether a program completed a cold start.
func (u unstarted) note(program string, size synthetic.Size, result *Run) {
	if _, started := result.value(coldStart); !started && result.Failed == "" {
		u[program] = size
	}
}

// skip returns the empty result of a program that did not complete a cold start with a cluster of at most as many Services; nil if
// it may be measured.
func (u unstarted) skip(program string, mode *mode, size synthetic.Size) *Run {
	with, known := u[program]
	if !known || size.Services < with.Services {
		return nil
	}
	run := newRun(program, mode.name, size)
	run.Amount = mode.amount.String()
	run.note("everything: skipped, because a cold start with %s was not completed in time", with)
	return run
}

// save writes the report as JSON and as a drawing.
func (r *Report) save(folder string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	var drawing strings.Builder
	return errors.Join(
		r.draw(&drawing),
		os.WriteFile(filepath.Join(folder, "bench.json"), append(text, '\n'), 0o644),
		os.WriteFile(filepath.Join(folder, "bench.svg"), []byte(drawing.String()), 0o644),
	)
}

// word reads a one-line file of the kernel.
func word(file string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(text))
}

func parse(args []string) (*options, error) {
	o := &options{}
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	program := f.String("proxy", "bin/kube-proxy", "the program to measure")
	peer := f.String("peer", "", "other programs to measure, separated by commas; they must accept kube-proxy's --config")
	modes := f.String("proxy-mode", "nftables,iptables", "the modes to measure, separated by commas")
	quick := f.Bool("quick", false, "a short run of 4 minutes")
	f.StringVar(&o.folder, "out", "bin/bench", "the folder for bench.json and bench.svg")
	f.DurationVar(&o.within, "within", 0, fmt.Sprintf("time limit for -proxy; measurements that exceed it are skipped (default %v, -quick %v)",
		within(false), within(true)))
	f.DurationVar(&o.peerWithin, "peer-within", 5*time.Minute, "time limit for each -peer, in each mode and with each cluster")
	f.IntVar(&o.starts, "starts", 0, "measure only starts: this many cold starts and restarts of each program, alternately; -within is the time limit for each mode and cluster then")
	f.StringVar(&o.profiles, "profiles", "", "the folder for profiles of the starts, which exists; profiled starts take longer")
	rules := f.String("rules", "", "compare only rulesets, separated by commas: each is a program, a file by nft list ruleset or iptables-save, or \"dnat\", a single rule")
	f.IntVar(&o.rounds, "rounds", 50, "with -rules, the number of rounds for each ruleset in each namespace, one namespace for each ruleset; with -fastpath, for each Service")
	fastPath := f.String("fastpath", "", "compare only two Services on real nodes, the first with a fast path: two addresses with ports, separated by a comma (fastpath.go)")
	f.StringVar(&o.fastPathServe, "fastpath-serve", "", "the `address` on which to serve -fastpath, and nothing else")
	var given amount
	f.StringVar(&given.sizes, "sizes", "", "the clusters: Services x endpoints of each, separated by commas (default below)")
	f.IntVar(&given.changes, "changes", 0, "number of measured changes of each kind (default below)")
	f.DurationVar(&given.churn, "churn", 0, "duration of each churn rate (default below)")
	f.IntVar(&given.pods, "pods", 0, "number of pods that a rolling update replaces (default below)")
	f.DurationVar(&given.resting, "idle", 0, "duration of each measurement of the idle cost (default below)")
	f.IntVar(&given.details, "details", 0, "the largest number of Services for which established traffic, idle cost and rolling updates are measured (default below)")
	f.StringVar(&given.rates, "churn-rates", "", "changes a second, separated by commas, or none (default below)")
	f.Usage = func() {
		fmt.Fprintln(f.Output(), "Usage of bench:")
		f.PrintDefaults()
		for _, name := range []string{"nftables", "iptables"} {
			fmt.Fprintf(f.Output(), "Defaults for %s: %s.\n With -quick: %s.\n", name, amountOf(name, false), amountOf(name, true))
		}
		fmt.Fprintf(f.Output(), "The changes of each kind end after %v, if %d were measured by then.\n", seriesLimit, leastChanges)
	}
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	if f.NArg() > 0 {
		return nil, fmt.Errorf("unexpected arguments %q: bench accepts only flags", f.Args())
	}
	if o.starts < 0 || o.starts == 0 && o.profiles != "" {
		return nil, errors.New("-starts must be at least 1, and -profiles needs it")
	}
	o.rules, o.fastPath = list(*rules), list(*fastPath)
	o.within = cmp.Or(o.within, within(*quick))
	o.programs = append([]string{*program}, list(*peer)...)
	for _, name := range list(*modes) {
		m, err := amountOf(name, *quick).or(given).of(name)
		if err != nil {
			return nil, err
		}
		o.modes = append(o.modes, m)
	}
	return o, nil
}

// list splits a text at its commas; the empty text has no parts.
func list(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(text, ",")
}
