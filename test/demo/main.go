//go:build linux

// The demo shows kube-proxy at work, for a person to read. It builds the laboratory of test/netns, runs bin/kube-proxy
// in it on a copy of examples/, sends real connections to every service and prints what became of them; then it changes
// the files and prints how soon that was met. It needs root, ends by itself, leaves nothing behind, and fails if
// anything was not as the table in shop.go says.
//
//	make demo
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// limit is how long the demo may take; it takes a quarter of that.
const limit = 55 * time.Second

var (
	// errWrong ends the demo when something was not as it should be; what it was has been printed by then.
	errWrong = errors.New("not everything was as it should be")
	// errStopped ends the demo when a person asks for it.
	errStopped = errors.New("stopped")
)

func main() { os.Exit(run()) }

// run is the demo with its exit code: 0, or 1 if something was wrong or could not be done, or 130 if it was stopped.
func run() int {
	ctx, cancel := context.WithTimeoutCause(untilSignal(), limit, fmt.Errorf("the demo took more than %v", limit))
	defer cancel()
	s := newScreen(os.Stdout)
	err := show(ctx, s)
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errStopped):
		s.line("")
		s.line("Stopped; everything is removed.")
		return 130
	case !errors.Is(err, errWrong):
		s.line("")
		s.line("%s", s.bad("The demo failed: "+err.Error()))
	}
	return 1
}

// untilSignal gives a context that ends with errStopped when somebody stops the demo. Who asks twice is not to wait.
// Nobody reading on (`make demo | head`) is such a case, so that it, too, is tidied up after.
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

// show sets everything up, shows it, and takes it away.
func show(ctx context.Context, s *screen) (err error) {
	started := time.Now()
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	d, err := setUp(s, fail)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.tearDown()) }()

	for _, part := range []func(context.Context) error{d.start, d.ask, d.change, d.grow, d.restart} {
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
		s.line("%s", s.bad(fmt.Sprintf("%s connections; of the lines above, %d are not as they should be.", thousands(d.sent), d.wrong)))
		return errWrong
	}
	s.line("%s (%.0f s; nothing of it is left)", s.good(thousands(d.sent)+" connections, all as they should be."), time.Since(started).Seconds())
	return nil
}
