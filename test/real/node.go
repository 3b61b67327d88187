//go:build linux

package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

var (
	//go:embed boot.sh
	bootScript string
	//go:embed node.sh
	nodeScript string
)

// node is a machine of the cluster: a process with its children in namespaces of their own, and a folder with what they write.
type node struct {
	world      *world
	name, dir  string
	ipv4, ipv6 string
	process    *exec.Cmd
}

// hierarchies returns the control group of all that make real starts, in each hierarchy of version 1, by the hierarchy's name as an option
// of mount. It is below this process's own group, with its limits.
func hierarchies() (map[string]string, error) {
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, err
	}
	all := map[string]string{}
	for line := range strings.Lines(string(text)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) == 3 && fields[1] != "" {
			all[fields[1]] = filepath.Join("/sys/fs/cgroup", strings.TrimPrefix(fields[1], "name="), fields[2], "kube-proxy-real")
		}
	}
	if len(all) == 0 {
		return nil, errors.New("this machine has only control groups of version 2; make real can give its nodes only those of version 1 so far")
	}
	return all, nil
}

// removeGroups removes control groups below those of hierarchies, or these. Processes that were killed leave theirs a moment later.
func removeGroups(ctx context.Context, below string) error {
	groups, err := hierarchies()
	if err != nil {
		return err
	}
	for _, group := range groups {
		group = filepath.Join(group, below)
		if _, err := os.Stat(group); err != nil {
			continue
		}
		if err := eventually(ctx, func() error { return all(command(ctx, "find", group, "-type", "d", "-delete")) }); err != nil {
			return err
		}
	}
	return nil
}

// boot starts the node, connects it to the bridge segment, and returns when containerd answers.
func (n *node) boot(ctx context.Context) error {
	groups, err := hierarchies()
	if err != nil {
		return err
	}
	logs := filepath.Join(n.world.dir, "log", n.name)
	if err := os.MkdirAll(logs, 0o755); err != nil {
		return err
	}
	console, err := os.OpenFile(filepath.Join(logs, "console.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer console.Close()
	n.process = exec.CommandContext(ctx, "sh", "-c", bootScript, "sh", nodeScript)
	n.process.Env = append(n.world.environment(), "NODE="+n.name, "DIR="+n.dir, "LOG="+logs, "IPV4="+n.ipv4, "IPV6="+n.ipv6,
		"GATEWAYS="+gateway4+" "+gateway6, "HIERARCHIES="+strings.Join(slices.Collect(maps.Keys(groups)), " "),
		"CGROUPS="+strings.Join(slices.Collect(maps.Values(groups)), " "))
	n.process.Stdout, n.process.Stderr = console, console
	if err := n.process.Start(); err != nil {
		return err
	}
	// Until it has its namespaces and mounts; then until the network that it had before is gone.
	err = eventually(ctx, func() error { return all(n.command(ctx, "test", "-d", "/run/sysctl")) })
	if err == nil {
		err = eventually(ctx, func() error {
			return all(command(ctx, "ip", "link", "add", n.name, "master", "segment", "up", "type", "veth", "peer", "name", "eth0",
				"netns", strconv.Itoa(n.process.Process.Pid)))
		})
	}
	if err == nil {
		err = eventually(ctx, func() error { return all(n.command(ctx, "ctr", "version")) })
	}
	return err
}

// crash ends all that runs on the node, its networks and mounts, like a power failure.
func (n *node) crash(ctx context.Context) error {
	if err := n.process.Process.Kill(); err != nil {
		return err
	}
	_ = n.process.Wait() // it says that it was killed
	return removeGroups(ctx, n.name)
}

// command prepares a command on the node.
func (n *node) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	pid := n.process.Process.Pid
	enter := []string{"--target", strconv.Itoa(pid), "--net", "--mount", "--uts", "--ipc", fmt.Sprintf("--pid=/proc/%d/ns/pid_for_children", pid), "--", name}
	return command(ctx, "nsenter", append(enter, args...)...)
}

// configure writes a file below the node's /etc, before the node's first start. Pairs of words are replaced in it.
func (n *node) configure(name, text string, replace ...string) error {
	path := filepath.Join(n.dir, "etc", "upper", name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(strings.NewReplacer(replace...).Replace(text)), 0o600)
}
