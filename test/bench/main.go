//go:build linux

package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/seed-11a05479/kube-proxy/test/bench/synthetic"
	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// options are the command line.
type options struct {
	programs, modes []string
	sizes           []synthetic.Size
	plan            plan
	folder          string
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	if err := netns.Check("nft"); err != nil {
		return err
	}
	for _, program := range o.programs {
		if _, err := os.Stat(program); err != nil {
			return fmt.Errorf("%w: make build makes bin/kube-proxy; -proxy and -peer name others", err)
		}
	}
	report := &Report{Machine: Machine{
		Time: time.Now().UTC().Format(time.RFC3339), Kernel: word("/proc/sys/kernel/osrelease"),
		Cores: runtime.NumCPU(), LoadBefore: word("/proc/loadavg"),
	}}
	var failed []error
	for _, mode := range o.modes {
		for _, size := range o.sizes {
			for _, program := range o.programs {
				begun := time.Now()
				say := func(format string, args ...any) {
					fmt.Fprintf(os.Stderr, "%6.1f s  %s %s %s: %s\n", time.Since(begun).Seconds(), program, mode, size, fmt.Sprintf(format, args...))
				}
				result, err := o.plan.measure(program, mode, size, say)
				failed = append(failed, err)
				report.Runs = append(report.Runs, result)
				report.Machine.LoadAfter = word("/proc/loadavg")
				failed = append(failed, report.save(o.folder)) // what has been measured is not lost with what comes next
			}
		}
	}
	return errors.Join(append(failed, report.write(os.Stdout))...)
}

// save writes the report for machines and as a drawing.
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

// word reads what the kernel says in one line.
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
	peer := f.String("peer", "", "programs to measure beside it, separated by commas: any that takes a Kubernetes kube-proxy's --config")
	modes := f.String("proxy-mode", "nftables", "the modes to measure, separated by commas")
	sizes := f.String("sizes", "", "the clusters: Services x endpoints of each, separated by commas (default 1000x2,10000x2,5000x50,45000x1)")
	quick := f.Bool("quick", false, "measure little, in 3 minutes")
	f.StringVar(&o.folder, "out", "bin/bench", "the folder for bench.json and bench.svg")
	f.BoolVar(&o.plan.api.OnlyJSON, "api-json", false, "let the API server answer in JSON only")
	f.BoolVar(&o.plan.api.NoStreams, "api-lists", false, "let the API server refuse streaming lists, as those before Kubernetes 1.34 did")
	changes := f.Int("changes", 0, "how many changes of each kind are measured (default 60)")
	churn := f.Duration("churn", 0, "how long each rate of churn lasts (default 30s)")
	rates := f.String("churn-rates", "", "changes a second, separated by commas, or none (default 10,100,1000)")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	if f.NArg() > 0 {
		return nil, fmt.Errorf("%q is not known; everything is told by flags", f.Args())
	}
	defaults := defaultsOf(*quick)
	o.plan.changes, o.plan.churn, o.plan.defaults = orElse(*changes, defaults.changes), orElse(*churn, defaults.churn), 1000
	o.programs, o.modes = append([]string{*program}, list(*peer)...), list(*modes)
	for _, text := range list(orElse(*sizes, defaults.sizes)) {
		size, err := synthetic.ParseSize(text)
		if err != nil {
			return nil, err
		}
		o.sizes = append(o.sizes, size)
	}
	for _, text := range list(orElse(*rates, defaults.rates)) {
		var rate int
		if text == "none" {
			continue
		}
		if _, err := fmt.Sscanf(text, "%d", &rate); err != nil || rate < 1 {
			return nil, fmt.Errorf("-churn-rates: %q is not a number from 1 on", text)
		}
		o.plan.rates = append(o.plan.rates, rate)
	}
	if o.plan.changes < 1 || o.plan.churn < time.Second {
		return nil, errors.New("-changes must be 1 or more, and -churn a second or more")
	}
	return o, nil
}

// defaults are what is measured unless the command line says otherwise.
type defaults struct {
	sizes, rates string
	changes      int
	churn        time.Duration
}

func defaultsOf(quick bool) defaults {
	if quick {
		return defaults{sizes: "1000x2,5000x50", rates: "100", changes: 50, churn: 5 * time.Second}
	}
	return defaults{sizes: "1000x2,10000x2,5000x50,45000x1", rates: "10,100,1000", changes: 60, churn: 30 * time.Second}
}

// orElse gives a value, or another one in place of nothing.
func orElse[T comparable](value, otherwise T) T {
	var nothing T
	if value == nothing {
		return otherwise
	}
	return value
}

// list splits a text at its commas; nothing has no parts.
func list(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(text, ",")
}
