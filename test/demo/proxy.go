//go:build linux

package main

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// program is the kube-proxy under show, as make build leaves it.
const program = "bin/kube-proxy"

// arguments are what kube-proxy is started with.
func arguments(manifests string) []string {
	return []string{
		"--manifests", manifests, "--proxy-mode", "nftables", "--hostname-override", "node1",
		"--cluster-cidr", "10.244.0.0/16,fd00:10:244::/48",
		"--healthz-bind-address", "127.0.0.1:10256", "--metrics-bind-address", "127.0.0.1:10249",
		"--conntrack-max-per-core", "0", // the limit is the machine's, which is not ours to change
	}
}

// proxy is kube-proxy running on node1.
type proxy struct {
	command *netns.Cmd
	// dismissed is set when its end is wanted.
	dismissed atomic.Bool
}

// runProxy starts kube-proxy. If it ends unasked, so does the demo.
func (d *demo) runProxy() error {
	p := &proxy{command: d.lab.Node1.Command(program, arguments(d.folder.dir)...)}
	p.command.Stdout, p.command.Stderr = d.log, d.log
	if err := p.command.Start(); err != nil {
		return err
	}
	d.proxy = p
	go func() {
		err := p.command.Wait()
		if p.dismissed.Load() {
			return
		}
		if err == nil {
			err = errors.New("exit status 0")
		}
		d.fail(fmt.Errorf("kube-proxy ended by itself: %w", err))
	}()
	return nil
}

// terminate asks the proxy to end, as the kubelet does, and waits until it has.
func (p *proxy) terminate() error {
	p.dismissed.Store(true)
	if err := p.command.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("send kube-proxy SIGTERM: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- p.command.Wait() }()
	select {
	case err := <-ended:
		if err != nil {
			return fmt.Errorf("kube-proxy was to end by SIGTERM: %w", err)
		}
		return nil
	case <-time.After(5 * time.Second):
		return errors.New("kube-proxy goes on 5 s after SIGTERM")
	}
}

// dismiss makes the end of the proxy no surprise.
func (p *proxy) dismiss() { p.dismissed.Store(true) }

// journal keeps what kube-proxy logs.
type journal struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write appends to the journal.
func (j *journal) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(b)
}

// alarm finds the lines by which a Go program with klog tells of errors.
var alarm = regexp.MustCompile(`^([EF]\d{4} |panic: |fatal error: |SIG[A-Z]+: )`)

// lines are all that was logged; alarms those that tell of errors, by their places.
func (j *journal) lines() (all []string, alarms []int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for line := range strings.Lines(j.text.String()) {
		line = strings.TrimRight(line, "\n")
		if alarm.MatchString(line) {
			alarms = append(alarms, len(all))
		}
		all = append(all, line)
	}
	return all, alarms
}

// showLog prints what kube-proxy logged from its first error on, or the end of it if that is asked for.
func (d *demo) showLog(end bool) {
	const most = 30
	lines, alarms := d.log.lines()
	what := "What kube-proxy logged"
	switch {
	case len(alarms) > 0:
		what += " from its first error on"
		lines = lines[alarms[0]:]
		lines = lines[:min(len(lines), most)]
	case end && len(lines) > 0:
		lines = lines[max(0, len(lines)-most):]
	default:
		return
	}
	d.line("")
	d.line("%s (up to %d lines):", d.bold(what), most)
	for _, line := range lines {
		d.line("  %s", line)
	}
}
