//go:build linux

// The demo demonstrates kube-proxy with real packets. It builds the lab of test/netns, runs bin/kube-proxy in it with a
// copy of examples/, connects to every Service and prints the results; then it changes the files and prints the time
// until each change takes effect. It needs root, removes everything that it created, and fails if any result differs
// from the table in shop.go.
//
//	make demo
//
// With -slow it sends less and waits longer, for an emulated machine (test/kernels).
// With -record it also writes its output as a picture.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

var (
	// errWrong is returned if any result was wrong; the details have already been printed.
	errWrong = errors.New("some results were wrong")
	// errStopped is the cause of the end of the demo after a signal.
	errStopped = errors.New("stopped")
)

func main() {
	slow := flag.Bool("slow", false, "send less and wait longer, for an emulated machine")
	picture := flag.String("record", "", "write the output of a demo without errors to this file, as an SVG")
	flag.Parse()
	os.Exit(run(tempoOf(*slow), *picture))
}

// run runs the demo and returns its exit code: 0, or 1 if a result was wrong or the demo failed, or 130 after a signal.
func run(t tempo, picture string) int {
	ctx, cancel := context.WithTimeoutCause(untilSignal(), t.limit, fmt.Errorf("the demo took more than %v", t.limit))
	defer cancel()
	s := newScreen(os.Stdout)
	var r *recording
	if picture != "" {
		r = s.record()
	}
	err := show(ctx, s, t)
	if err == nil && r != nil {
		err = r.save(picture)
	}
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errStopped):
		s.line("")
		s.line("Stopped; the lab was removed.")
		return 130
	case !errors.Is(err, errWrong):
		s.line("")
		s.line("%s", s.bad("The demo failed: "+err.Error()))
	}
	return 1
}

// untilSignal returns a context that is canceled with errStopped after a signal. A second signal ends the process at
// once. SIGPIPE is included, so that the lab is removed after `make demo | head` too.
func untilSignal() context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)
	go func() {
		<-signals
		cancel(errStopped)
		signal.Reset(os.Interrupt, syscall.SIGTERM)
	}()
	return ctx
}

// show builds the lab, runs all parts of the demo and removes the lab.
func show(ctx context.Context, s *screen, t tempo) (err error) {
	started := time.Now()
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	d, err := setUp(s, t, fail)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.tearDown()) }()

	for _, part := range []func(context.Context) error{d.start, d.runChecks, d.change, d.grow, d.restart} {
		if err := part(ctx); err != nil {
			if cause := context.Cause(ctx); cause != nil {
				err = cause
			}
			if !errors.Is(err, errStopped) {
				d.showLog(true)
			}
			return err
		}
	}
	d.showLog(d.wrong > 0)
	s.line("")
	if d.wrong > 0 {
		s.line("%s", s.bad(fmt.Sprintf("%s connections; %d of the lines above are wrong.", thousands(d.sent), d.wrong)))
		return errWrong
	}
	s.line("%s (%.0f s)", s.good(thousands(d.sent)+" connections, all with the expected result."), time.Since(started).Seconds())
	return nil
}
