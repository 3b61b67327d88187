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

// errWrong ends the demo when something was not as it should be; what it was has been printed by then.
var errWrong = errors.New("not everything was as it should be")

func main() { os.Exit(run()) }

// run is the demo with its exit code: 0, or 1 if something was wrong or could not be done, or 130 if it was stopped.
func run() int {
	// With SIGPIPE among the signals, `make demo | head` is tidied up after, too.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)
	defer stop()
	context.AfterFunc(ctx, stop) // who asks twice is not to wait
	timed, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("the demo took more than %v", limit))
	defer cancel()

	s := newScreen(os.Stdout)
	err := show(timed, s)
	switch {
	case err == nil:
		return 0
	case ctx.Err() != nil:
		s.line("")
		s.line("Stopped; everything is removed.")
		return 130
	case !errors.Is(err, errWrong):
		s.line("")
		s.line("%s", s.bad("The demo failed: "+err.Error()))
	}
	return 1
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
			d.showLog(true)
			if cause := context.Cause(ctx); cause != nil {
				return cause
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
