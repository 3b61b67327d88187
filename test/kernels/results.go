package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// The first words of the lines that the machine prints when a suite begins and ends. The suite's name follows, and at the end
// its exit code.
const (
	beginLine = "the suite begins: "
	endLine   = "the suite ends: "
)

// results reads the output of the machine, copies it to the console, and keeps how each suite ended.
type results struct {
	console io.Writer
	release string

	begun     time.Time
	suite     string
	codes     map[string]string // exit codes by suite
	skipped   []string
	unwritten string // the beginning of a line
}

// Write implements [io.Writer].
func (r *results) Write(p []byte) (int, error) {
	r.unwritten += string(p)
	for {
		line, rest, ok := strings.Cut(r.unwritten, "\n")
		if !ok {
			return len(p), nil
		}
		r.unwritten = rest
		if err := r.line(line); err != nil {
			return 0, err
		}
	}
}

func (r *results) line(line string) error {
	_, ended, isEnd := strings.Cut(line, endLine)
	_, begun, isBegin := strings.Cut(line, beginLine)
	switch {
	case isBegin:
		r.suite = begun
	case isEnd:
		name, code, _ := strings.Cut(ended, " ")
		if r.codes == nil {
			r.codes = map[string]string{}
		}
		r.codes[name] = code
	case strings.Contains(line, "--- SKIP"), strings.Contains(line, "no tests to run"):
		r.skipped = append(r.skipped, r.suite+": "+strings.TrimSpace(line))
	case strings.HasPrefix(strings.TrimSpace(line), "=== "):
		return nil // which test runs, pauses, continues
	}
	_, err := fmt.Fprintf(r.console, "%-8s %4.0fs %s\n", r.release, time.Since(r.begun).Seconds(), line)
	return err
}

// check returns an error unless each suite ran and succeeded, without skipping a test.
func (r *results) check(chosen []suite) error {
	var failed []error
	for _, s := range chosen {
		switch code, ended := r.codes[s.name]; {
		case !ended:
			failed = append(failed, fmt.Errorf("suite %s did not end", s.name))
		case code != "0":
			failed = append(failed, fmt.Errorf("suite %s ended with exit code %s", s.name, code))
		}
	}
	for _, test := range r.skipped {
		failed = append(failed, fmt.Errorf("not run: %s", test))
	}
	return errors.Join(failed...)
}
