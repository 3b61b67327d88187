package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed-11a05479/kube-proxy/test/debian"
)

// patience is the time limit of one machine.
const patience = 2 * time.Hour

func main() {
	var o options
	releases := flag.String("releases", "bookworm,trixie,bullseye", "comma-separated Debian `releases` whose kernels and tools are used")
	flag.BoolVar(&o.quick, "quick", false, "run only the shortest telling part of each suite")
	only := flag.String("only", "", "comma-separated `names` of the suites to run; all if empty")
	flag.StringVar(&o.peer, "peer", "", "`path` of Kubernetes' own kube-proxy, to leave behind what it leaves; without it ip, ipvsadm and ipset do")
	flag.StringVar(&o.command, "command", "", "run this shell `script` in place of the suites, in the folder that they run in")
	flag.BoolVar(&o.counts, "instructions", false, "count instructions in place of time, to measure: one is a nanosecond")
	flag.IntVar(&o.parallel, "parallel", 1, "`number` of machines that run at the same time; each keeps one processor busy")
	flag.Parse()
	o.releases = strings.Split(*releases, ",")
	if *only != "" {
		o.only = strings.Split(*only, ",")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := o.run(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "error: %v\n", err)
		stop()
		os.Exit(1) //nolint:gocritic // stop was called
	}
}

// userland returns the packages that are installed in the machine, including the kernel.
func userland() []string {
	return []string{"linux-image-cloud-amd64", "busybox-static", "kmod", "iproute2", "iptables", "nftables", "ipset", "ipvsadm", "conntrack"}
}

// options is the command line.
type options struct {
	releases      []string
	quick, counts bool
	parallel      int
	only          []string
	peer, command string
}

// run runs the suites on each release, in one machine a release.
func (o *options) run(ctx context.Context) error {
	chosen := slices.DeleteFunc(suites(), func(s suite) bool { return o.quick && s.quick == "" || s.peer && o.peer == "" })
	for _, name := range o.only {
		if !slices.ContainsFunc(chosen, func(s suite) bool { return s.name == name }) {
			return fmt.Errorf("no suite %q", name)
		}
	}
	if o.only != nil {
		chosen = slices.DeleteFunc(chosen, func(s suite) bool { return !slices.Contains(o.only, s.name) })
	}
	built, err := os.MkdirTemp("", "kernels-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(built)
	files, err := build(ctx, built, chosen)
	if err != nil {
		return err
	}
	if o.peer != "" {
		files["/peer"] = o.peer
	}
	image, err := fetch(ctx, imageRelease)
	if err != nil {
		return err
	}
	var machines sync.WaitGroup
	free := make(chan struct{}, max(1, o.parallel))
	failed := make([]error, len(o.releases))
	for i, release := range o.releases {
		root, err := fetch(ctx, release) // one after the other: they share folders
		if err != nil {
			failed[i] = fmt.Errorf("%s: %w", release, err)
			continue
		}
		free <- struct{}{}
		machines.Go(func() {
			defer func() { <-free }()
			m := &machine{root: root, files: files, counts: o.counts, console: os.Stdout}
			if release != imageRelease {
				m.image = image
			}
			if err := o.runOn(ctx, m, release, chosen); err != nil {
				failed[i] = fmt.Errorf("%s: %w", release, err)
			}
		})
	}
	machines.Wait()
	return errors.Join(failed...)
}

// imageRelease is the release of the image's packages (build/image/packages.json).
const imageRelease = "bookworm"

// runOn runs the suites of a release on its machine.
func (o *options) runOn(ctx context.Context, m *machine, release string, chosen []suite) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if o.command != "" {
		code, err := m.run(ctx, "cd "+sources+"\n"+o.command)
		if err == nil && code != 0 {
			err = fmt.Errorf("exit code %d", code)
		}
		return err
	}
	chosen = slices.DeleteFunc(slices.Clone(chosen), func(s suite) bool { return s.releases != nil && !slices.Contains(s.releases, release) })
	results := &results{console: os.Stdout, release: release, begun: time.Now()}
	m.console = results
	_, err := m.run(ctx, commands(chosen, o.quick))
	return errors.Join(err, results.check(chosen))
}

// fetch returns the folder with a release.
func fetch(ctx context.Context, release string) (root string, err error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	root, err = debian.Fetch(filepath.Join(cache, "kube-proxy-kernels", release), release, userland()...)
	if err != nil {
		return "", err
	}
	return root, prepareModules(ctx, root)
}
