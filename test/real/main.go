//go:build linux

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"time"
)

// limit is how long the cluster may exist.
const limit = 90 * time.Minute

func main() {
	repository := flag.String("repository", "../..", "the repository, in which make image has built the image")
	only := flag.String("only", "", "a regular expression: run the steps whose names match, after the cluster is up")
	focus := flag.String("specs", defaultSpecs, "a regular expression: run Kubernetes' specs whose names match")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	var err error
	switch flag.Arg(0) {
	case "": // on the machine
		err = outside(ctx, *repository, *only, os.Args[1:])
	case "inside": // in the namespaces that outside has made
		err = inside(ctx, *repository, *only, *focus)
	case "pause", "serve": // in pods
		err = serve(ctx, flag.Arg(0) == "serve")
	case "ask": // in pods, nodes and beside them
		err = ask(flag.Args()[1:])
	case "load":
		err = load(flag.Args()[1:])
	default:
		err = fmt.Errorf("unknown command %q", flag.Arg(0))
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "real:", err)
		os.Exit(1)
	}
}

// outside builds what the cluster needs, runs this program again in namespaces, and removes what these do not end with.
func outside(ctx context.Context, repository, only string, args []string) (err error) {
	w, err := newWorld(repository)
	if err != nil {
		return err
	}
	steps, err := w.steps(only)
	if err != nil {
		return err
	}
	if _, err := os.Stat("/proc/sys/net/bridge"); err != nil {
		return fmt.Errorf("%w: load the kernel's module br_netfilter", err)
	}
	if err := w.remove(); err != nil { // of a run that was killed
		return fmt.Errorf("%w: does another make real run?", err)
	}
	defer func() { err = errors.Join(err, w.remove()) }()
	if err := w.prepare(ctx, slices.ContainsFunc(steps, step.hasSpecs)); err != nil {
		return err
	}
	self := append([]string{"--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--", w.program("real")}, args...)
	cluster := exec.CommandContext(ctx, "unshare", append(self, "inside")...)
	cluster.Stdout, cluster.Stderr, cluster.Env = os.Stdout, os.Stderr, w.environment()
	runtime.LockOSThread() // the cluster ends with this thread
	cluster.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cluster.Run(); err != nil {
		return errors.Join(context.Cause(ctx), fmt.Errorf("%w; the logs are in %s", err, filepath.Join(w.dir, "log")))
	}
	return nil
}

// inside makes the cluster and runs the steps.
func inside(ctx context.Context, repository, only, focus string) error {
	ctx, stop := context.WithTimeoutCause(ctx, limit, fmt.Errorf("the cluster took more than %v", limit))
	defer stop()
	w, err := newWorld(repository)
	if err != nil {
		return err
	}
	w.focus = focus
	steps, err := w.steps(only)
	if err != nil {
		return err
	}
	for _, s := range steps {
		began := time.Now()
		fmt.Printf("== %s\n", s.name)
		if err := s.do(ctx, w); err != nil {
			w.explain()
			return fmt.Errorf("%s: %w", s.name, errors.Join(err, context.Cause(ctx)))
		}
		fmt.Printf("   ok, %v\n", time.Since(began).Round(time.Second))
	}
	return nil
}

// explain prints what an administrator would look at first.
func (w *world) explain() {
	ctx, stop := context.WithTimeout(context.Background(), 30*time.Second)
	defer stop()
	for _, args := range [][]string{
		{"get", "pods", "-A", "-o", "wide"}, {"get", "events", "-A", "--sort-by=.metadata.creationTimestamp"},
		{"-n", "kube-system", "logs", "-l", "k8s-app=kube-proxy", "--tail=20", "--prefix"},
	} {
		text, err := w.kubectl(ctx, args...)
		if err != nil {
			text = err.Error()
		}
		fmt.Fprintf(os.Stderr, "%s\n", text[max(0, len(text)-6000):])
	}
}
