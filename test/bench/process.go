//go:build linux

package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// process is a proxy at work.
type process struct {
	command *netns.Cmd
	log     journal
	started time.Time
	ended   chan struct{} // closed when it has
}

// start starts a program with a configuration file.
func (w *world) start(program, config string) (*process, error) {
	p := &process{command: w.node.Command(program, "--config", config), ended: make(chan struct{})}
	p.command.Stdout, p.command.Stderr = &p.log, &p.log
	p.started = time.Now()
	if err := p.command.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(p.ended)
		_ = p.command.Wait() // what matters is that it is gone
	}()
	return p, nil
}

// alive is an error, with what the proxy said last, when it has ended.
func (p *process) alive() error {
	select {
	case <-p.ended:
		return fmt.Errorf("%s ended by itself: %s\nIt said:\n%s", p.command.Path, p.command.ProcessState, p.log.end())
	default:
		return nil
	}
}

// stop asks the proxy to end, as the kubelet does.
func (p *process) stop() error {
	if err := p.alive(); err != nil {
		return err
	}
	if err := p.command.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("end %s: %w", p.command.Path, err)
	}
	select {
	case <-p.ended:
		return nil
	case <-time.After(30 * time.Second): // what the kubelet waits
		return p.command.Kill()
	}
}

// proc reads one of the process' files in /proc.
func (p *process) proc(name string) ([]byte, error) {
	content, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(p.command.Process.Pid), name))
	if err != nil {
		return nil, errors.Join(p.alive(), err)
	}
	return content, nil
}

// cpu is the processor time that the process and the programs that it has run have used. Its threads tell in
// nanoseconds; what ended threads and programs used is known to 10 ms.
func (p *process) cpu() (time.Duration, error) {
	stat, err := p.proc("stat")
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	ticks := func(first int) time.Duration { // proc_pid_stat(5) counts from 1, and the first two are cut off
		user, _ := strconv.Atoi(fields[first-3])
		system, _ := strconv.Atoi(fields[first-2])
		return time.Duration(user+system) * 10 * time.Millisecond
	}
	own, children := ticks(14), ticks(16)
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", p.command.Process.Pid))
	if err != nil {
		return 0, err
	}
	var precise time.Duration
	for _, thread := range threads {
		if text, err := os.ReadFile(thread); err == nil { // a thread may have ended
			first, _, _ := strings.Cut(string(text), " ")
			nanoseconds, _ := strconv.ParseInt(first, 10, 64)
			precise += time.Duration(nanoseconds)
		}
	}
	return max(own, precise) + children, nil
}

// ownCPU is the processor time that this process has used: the API server, and questions and answers.
func ownCPU() (time.Duration, error) {
	var usage syscall.Rusage
	err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()), err
}

// memory is what the process has in RAM, now and at most so far, in bytes.
func (p *process) memory() (now, peak int64, err error) {
	status, err := p.proc("status")
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(string(status)) {
		name, rest, _ := strings.Cut(line, ":")
		if fields := strings.Fields(rest); name == "VmRSS" || name == "VmHWM" {
			kilobytes, err := strconv.ParseInt(fields[0], 10, 64)
			if err != nil {
				return 0, 0, fmt.Errorf("%s of /proc/PID/status: %w", name, err)
			}
			if name == "VmRSS" {
				now = kilobytes << 10
			} else {
				peak = kilobytes << 10
			}
		}
	}
	return now, peak, nil
}

// rest waits until the process does next to nothing, and tells since when. It takes part of the work that follows a
// start, such as reading lists, for granted: the caller waits for that by other means.
func (p *process) rest(deadline time.Time) (time.Time, error) {
	const window, step, idle = 400 * time.Millisecond, 20 * time.Millisecond, 0.05
	type sample struct {
		at  time.Time
		cpu time.Duration
	}
	var samples []sample
	start := time.Now()
	for ; time.Now().Before(deadline); time.Sleep(step) {
		used, err := p.cpu()
		if err != nil {
			return time.Time{}, err
		}
		samples = append(samples, sample{time.Now(), used})
		for len(samples) > 1 && samples[len(samples)-1].at.Sub(samples[1].at) >= window {
			samples = samples[1:]
		}
		first, last := samples[0], samples[len(samples)-1]
		if passed := last.at.Sub(first.at); passed >= window && float64(last.cpu-first.cpu) < idle*float64(passed) {
			return first.at, nil
		}
	}
	return time.Time{}, fmt.Errorf("%s is still busy after %v", p.command.Path, time.Since(start).Round(time.Millisecond))
}

// journal keeps the end of what a process says.
type journal struct {
	mu   sync.Mutex
	text []byte
}

// Write appends.
func (j *journal) Write(b []byte) (int, error) {
	const most = 1 << 16
	j.mu.Lock()
	defer j.mu.Unlock()
	j.text = append(j.text, b...)
	if len(j.text) > 2*most {
		j.text = append([]byte(nil), j.text[len(j.text)-most:]...)
	}
	return len(b), nil
}

// end gives the last lines.
func (j *journal) end() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return string(j.text[max(0, len(j.text)-3000):])
}
