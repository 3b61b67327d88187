//go:build linux

package main

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// program is the kube-proxy binary of make build.
const program = "bin/kube-proxy"

// arguments returns the command line of kube-proxy.
func arguments(manifests string) []string {
	return []string{
		"--manifests", manifests, "--proxy-mode", "nftables", "--hostname-override", "node1",
		"--cluster-cidr", "10.244.0.0/16,fd00:10:244::/48",
		"--healthz-bind-address", "127.0.0.1:10256", "--metrics-bind-address", "127.0.0.1:10249",
		"--conntrack-max-per-core", "0", // the limit applies to the whole machine; do not change it
	}
}

// proxy is kube-proxy running on node1.
type proxy struct {
	command *netns.Cmd
	// exitExpected is set when its exit is expected.
	exitExpected atomic.Bool
}

// runProxy starts kube-proxy. If it exits unexpectedly, the demo fails.
func (d *demo) runProxy() error {
	p := &proxy{command: d.lab.Node1.Command(program, arguments(d.folder.dir)...)}
	p.command.Stdout, p.command.Stderr = d.log, d.log
	if err := p.command.Start(); err != nil {
		return err
	}
	d.proxy = p
	go func() {
		err := p.command.Wait()
		if p.exitExpected.Load() {
			return
		}
		if err == nil {
			err = errors.New("exit status 0")
		}
		d.fail(fmt.Errorf("kube-proxy exited unexpectedly: %w", err))
	}()
	return nil
}

// terminate stops the proxy with SIGTERM, as the kubelet does, and waits until it exits.
func (p *proxy) terminate(within time.Duration) error {
	p.exitExpected.Store(true)
	if err := p.command.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("send kube-proxy SIGTERM: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- p.command.Wait() }()
	select {
	case err := <-ended:
		if err != nil {
			return fmt.Errorf("kube-proxy after SIGTERM: %w", err)
		}
		return nil
	case <-time.After(within):
		return fmt.Errorf("kube-proxy still running %v after SIGTERM", within)
	}
}

// expectExit marks the exit of the proxy as expected.
func (p *proxy) expectExit() { p.exitExpected.Store(true) }

// logBuffer is the log of kube-proxy.
type logBuffer struct{ netns.Log }

// errorLine matches the log lines with which a Go program that uses klog reports errors and crashes.
var errorLine = regexp.MustCompile(`^([EF]\d{4} |panic: |fatal error: |SIG[A-Z]+: )`)

// lines returns all log lines, and the indexes of those that report errors.
func (j *logBuffer) lines() (all []string, errorLines []int) {
	for line := range strings.Lines(j.String()) {
		line = strings.TrimRight(line, "\n")
		if errorLine.MatchString(line) {
			errorLines = append(errorLines, len(all))
		}
		all = append(all, line)
	}
	return all, errorLines
}

// showLog prints the log of kube-proxy from its first error; if there is no error and end is set, the end of the log.
func (d *demo) showLog(end bool) {
	const most = 30
	lines, errorLines := d.log.lines()
	what := "Log of kube-proxy"
	switch {
	case len(errorLines) > 0:
		what += " from its first error"
		lines = lines[errorLines[0]:]
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
