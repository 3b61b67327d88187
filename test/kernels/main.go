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
	"strings"
	"time"

	"github.com/seed-11a05479/kube-proxy/test/debian"
)

// patience is the time limit of one suite.
const patience = 15 * time.Minute

func main() {
	var o options
	flag.StringVar(&o.release, "release", "bookworm", "Debian `release` whose kernel and tools are used")
	flag.StringVar(&o.peer, "peer", "", "`path` of Kubernetes' own kube-proxy, to leave behind what it leaves; without it ip, ipvsadm and ipset do")
	flag.StringVar(&o.command, "command", "", "run this shell `script` instead of the suites")
	flag.Parse()
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
	release, peer, command string
}

// run fetches the release, and runs all suites.
func (o *options) run(ctx context.Context) error {
	cache, err := os.UserCacheDir()
	if err != nil {
		return err
	}
	root, err := debian.Fetch(filepath.Join(cache, "kube-proxy-kernels", o.release), o.release, userland()...)
	if err != nil {
		return err
	}
	m := &machine{root: root, files: map[string]string{}, console: os.Stdout}
	if o.command != "" {
		return m.expect(ctx, o.command)
	}
	built, err := os.MkdirTemp("", "kernels-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(built)
	if err := run("go", "build", "-o", filepath.Join(built, "kube-proxy"), "./cmd/kube-proxy"); err != nil {
		return err
	}
	m.files["/kube-proxy"] = filepath.Join(built, "kube-proxy")
	if o.peer != "" {
		m.files["/peer"] = o.peer
	}
	var failed []error
	for i, s := range suites() {
		binary := filepath.Join(built, fmt.Sprintf("test-%d", i))
		if err := run("go", "test", "-c", "-o", binary, s.folder); err != nil {
			return err
		}
		m.files["/test"] = binary
		fmt.Printf("%s on %s\n", s.folder, o.release)
		if err := m.expect(ctx, s.command()); err != nil {
			failed = append(failed, fmt.Errorf("%s on %s: %w", s.folder, o.release, err))
		}
	}
	return errors.Join(failed...)
}

// run runs a program and shows its output only if it fails.
func run(name string, args ...string) error {
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, out)
	}
	return nil
}

// expect runs a script that should end with exit code 0.
func (m *machine) expect(ctx context.Context, command string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	code, err := m.run(ctx, command)
	if err == nil && code != 0 {
		err = fmt.Errorf("exit code %d", code)
	}
	return err
}
