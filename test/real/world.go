//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// gateway4 and gateway6 are the addresses of the machine beside the nodes.
const (
	gateway4 = "192.168.99.1"
	gateway6 = "fd00:99::1"
)

// world is the cluster and the machine beside it, as folders know it: what runs is found through them.
type world struct {
	repository string
	// dir is bin/real: log stays, run is removed.
	dir   string
	nodes [2]*node
	// focus is a regular expression for the names of Kubernetes' specs.
	focus string
}

func newWorld(repository string) (*world, error) {
	repository, err := filepath.Abs(repository)
	if err != nil {
		return nil, err
	}
	w := &world{repository: repository, dir: filepath.Join(repository, "bin", "real")}
	for i := range w.nodes {
		w.nodes[i] = &node{
			world: w, name: fmt.Sprintf("node%d", i+1), dir: filepath.Join(w.dir, "run", fmt.Sprintf("node%d", i+1)),
			ipv4: fmt.Sprintf("192.168.99.%d", 11+i), ipv6: fmt.Sprintf("fd00:99::%d", 11+i),
		}
	}
	return w, nil
}

// path returns the path of a file that is removed at the end.
func (w *world) path(elements ...string) string {
	return filepath.Join(append([]string{w.dir, "run"}, elements...)...)
}

// program returns the path of a program, by its plain name.
func (w *world) program(name string) string { return w.path("bin", name) }

// environment returns the variables of all programs of the cluster. A proxy of this machine must not be among them.
func (w *world) environment() []string {
	return []string{"PATH=" + w.path("bin") + ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/tmp",
		"KUBECONFIG=" + w.path("node1", "etc", "upper", "kubernetes", "admin.conf")}
}

// remove removes the control groups, which must be empty, and the folder run.
func (w *world) remove() error {
	if err := removeGroups(context.Background(), ""); err != nil {
		return err
	}
	return os.RemoveAll(w.path())
}

// command prepares a command on the machine beside the cluster, whose variables are those of environment.
func command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// kubectl returns what kubectl prints.
func (w *world) kubectl(ctx context.Context, args ...string) (string, error) {
	return output(command(ctx, "kubectl", args...))
}

// output runs a command and returns its standard output. The error has the end of its standard error.
func output(cmd *exec.Cmd) (string, error) {
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if err != nil {
		text := strings.TrimSpace(stderr.String())
		err = fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, text[max(0, len(text)-2000):])
	}
	return stdout.String(), err
}

// all runs commands one after another until one fails.
func all(commands ...*exec.Cmd) error {
	for _, cmd := range commands {
		if _, err := output(cmd); err != nil {
			return err
		}
	}
	return nil
}

// eventually repeats f for two minutes until it succeeds.
func eventually(ctx context.Context, f func() error) error {
	ctx, stop := context.WithTimeout(ctx, 2*time.Minute)
	defer stop()
	for {
		err := f()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		case <-time.After(500 * time.Millisecond):
		}
	}
}
