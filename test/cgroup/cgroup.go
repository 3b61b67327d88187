//go:build linux

// Package cgroup runs programs of tests in control groups that limit their memory or their CPU time, in version 1 and 2 of the
// kernel's interface (cgroups(7)). A group is removed when its test ends.
//
// A machine may not have what a group needs: containers usually see control groups that cannot be written. Unlike a missing tool,
// this skips a test in CI too.
package cgroup

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// root is where control groups are mounted.
const root = "/sys/fs/cgroup"

// period is the length of the kernel's periods of CPU time, in microseconds; it is also the kernel's default.
const period = 100_000

// Group is a control group with one controller.
type Group struct {
	t       testing.TB
	path    string
	version int
}

// New creates a group with a controller, "memory" or "cpu". It skips the test if it cannot.
func New(t testing.TB, controller string) *Group {
	t.Helper()
	g, err := create(t, controller)
	if err != nil {
		t.Skipf("skipped: no control group with the controller %s: %v", controller, err)
	}
	t.Cleanup(func() {
		var err error
		for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
			if err = unix.Rmdir(g.path); !errors.Is(err, unix.EBUSY) { // a killed process leaves its group a moment later
				break
			}
		}
		if err != nil {
			t.Errorf("remove the control group %s: %v", g.path, err)
		}
	})
	return g
}

func create(t testing.TB, controller string) (*Group, error) {
	g := &Group{t: t, version: 1}
	parent := filepath.Join(root, controller)
	if _, err := os.Stat(filepath.Join(parent, "cgroup.procs")); err != nil {
		enabled, err := os.ReadFile(filepath.Join(root, "cgroup.subtree_control"))
		if err != nil {
			return nil, err
		}
		if !slices.Contains(strings.Fields(string(enabled)), controller) {
			return nil, fmt.Errorf("%s/cgroup.subtree_control enables only %q", root, enabled)
		}
		g.version, parent = 2, root
	}
	g.path = filepath.Join(parent, fmt.Sprintf("kube-proxy-test-%d-%d", os.Getpid(), rand.Uint32()))
	return g, os.Mkdir(g.path, 0o755)
}

// Wrap returns the path of a script that runs a program in the group, with the script's arguments.
func (g *Group) Wrap(program string) string {
	g.t.Helper()
	script := filepath.Join(g.t.TempDir(), "limited")
	text := fmt.Sprintf("#!/bin/sh\necho $$ > '%s/cgroup.procs' && exec '%s' \"$@\"\n", g.path, program)
	if err := os.WriteFile(script, []byte(text), 0o700); err != nil {
		g.t.Fatal(err)
	}
	return script
}

// LimitMemory sets the limit in bytes of the memory of the group's processes, and of what the kernel allocates for them; 0 is
// no limit.
func (g *Group) LimitMemory(bytes int64) {
	g.t.Helper()
	text := strconv.FormatInt(bytes, 10)
	if bytes == 0 {
		text = [...]string{1: "-1", 2: "max"}[g.version]
	}
	g.write([...]string{1: "memory.limit_in_bytes", 2: "memory.max"}[g.version], text)
}

// LimitCPU sets the limit of CPU time in percent of one core.
func (g *Group) LimitCPU(percent int) {
	g.t.Helper()
	quota := period / 100 * percent
	if g.version == 2 {
		g.write("cpu.max", fmt.Sprint(quota, period))
		return
	}
	g.write("cpu.cfs_period_us", strconv.Itoa(period))
	g.write("cpu.cfs_quota_us", strconv.Itoa(quota))
}

// Peak returns the most memory that was in use at any time, in bytes.
func (g *Group) Peak() int64 {
	g.t.Helper()
	return g.number([...]string{1: "memory.max_usage_in_bytes", 2: "memory.peak"}[g.version], "")
}

// Kills returns how many processes the kernel has killed because the memory was full.
func (g *Group) Kills() int64 {
	g.t.Helper()
	return g.number([...]string{1: "memory.oom_control", 2: "memory.events"}[g.version], "oom_kill")
}

// Throttled returns in how many periods of 100 ms the group's CPU time was used up.
func (g *Group) Throttled() int64 {
	g.t.Helper()
	return g.number("cpu.stat", "nr_throttled")
}

// number reads a file that is a number, or that has lines of names and numbers.
func (g *Group) number(file, name string) int64 {
	g.t.Helper()
	text, err := os.ReadFile(filepath.Join(g.path, file))
	if err != nil {
		g.t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if name != "" && (len(fields) != 2 || fields[0] != name) {
			continue
		}
		n, err := strconv.ParseInt(fields[len(fields)-1], 10, 64)
		if err != nil {
			g.t.Fatalf("%s: %v", file, err)
		}
		return n
	}
	g.t.Fatalf("%s has no %s: %s", file, name, text)
	return 0
}

func (g *Group) write(file, text string) {
	g.t.Helper()
	if err := os.WriteFile(filepath.Join(g.path, file), []byte(text), 0o600); err != nil {
		g.t.Fatal(err)
	}
}
