//go:build linux

package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// process is a running proxy.
type process struct {
	command *netns.Cmd
	log     logTail
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
		_ = p.command.Wait() // only the exit matters, not its status
	}()
	return p, nil
}

// alive returns an error with the end of the proxy's log if the proxy has exited.
func (p *process) alive() error {
	select {
	case <-p.ended:
		return fmt.Errorf("%s exited unexpectedly: %s\nIts log ends with:\n%s", p.command.Path, p.command.ProcessState, p.log.end())
	default:
		return nil
	}
}

// stop terminates the proxy as the kubelet does.
func (p *process) stop() error {
	if err := p.alive(); err != nil {
		return err
	}
	if err := p.command.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("stop %s: %w", p.command.Path, err)
	}
	select {
	case <-p.ended:
		return nil
	case <-time.After(30 * time.Second): // the kubelet's default grace period
		return p.command.Kill()
	}
}

// proc reads a file of the process in /proc.
func (p *process) proc(name string) ([]byte, error) {
	content, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(p.command.Process.Pid), name))
	if err != nil {
		return nil, errors.Join(p.alive(), err)
	}
	return content, nil
}

// cpu returns the CPU time of the process and of the programs that it runs or has run, such as iptables-restore and nft. The
// time of running threads is known in nanoseconds, that of exited threads and processes with a precision of 10 ms.
func (p *process) cpu() (time.Duration, error) {
	used, err := cpuTime(p.command.Process.Pid)
	if err != nil {
		return 0, errors.Join(p.alive(), err)
	}
	return used, nil
}

// cpuDuring returns the CPU time that the process uses while work runs, and how long that takes.
func (p *process) cpuDuring(work func() error) (used, passed time.Duration, err error) {
	before, err := p.cpu()
	if err != nil {
		return 0, 0, err
	}
	start := time.Now()
	if err := work(); err != nil {
		return 0, 0, err
	}
	passed = time.Since(start)
	after, err := p.cpu()
	return after - before, passed, err
}

// cpuTime returns the CPU time of a process and its child processes. It starts again if a child exits meanwhile, which would be
// counted twice or not at all; not for ever, because a program may start children all the time.
func cpuTime(pid int) (time.Duration, error) {
	for tries := 100; ; tries-- {
		running := childrenOf(pid)
		sum, err := cpuWithoutRunning(pid)
		if err != nil {
			return 0, err
		}
		for _, child := range running {
			if used, err := cpuTime(child); err == nil { // it may have exited
				sum += used
			}
		}
		if tries == 0 || slices.Equal(running, childrenOf(pid)) {
			return sum, nil
		}
	}
}

// childrenOf returns the running child processes of a process.
func childrenOf(pid int) (pids []int) {
	for _, text := range readThreads(pid, "children") {
		for field := range strings.FieldsSeq(text) {
			if child, err := strconv.Atoi(field); err == nil {
				pids = append(pids, child)
			}
		}
	}
	return pids
}

// cpuWithoutRunning returns the CPU time of a process and of its children that have exited.
func cpuWithoutRunning(pid int) (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	ticks := func(first int) time.Duration { // proc_pid_stat(5) counts from 1, and the first two fields are cut off
		user, _ := strconv.Atoi(fields[first-3])
		system, _ := strconv.Atoi(fields[first-2])
		return time.Duration(user+system) * 10 * time.Millisecond
	}
	own, children := ticks(14), ticks(16)
	var precise time.Duration
	for _, text := range readThreads(pid, "schedstat") {
		first, _, _ := strings.Cut(text, " ")
		nanoseconds, _ := strconv.ParseInt(first, 10, 64)
		precise += time.Duration(nanoseconds)
	}
	return max(own, precise) + children, nil
}

// readThreads returns the contents of a file in /proc of each thread that has not exited.
func readThreads(pid int, name string) (texts []string) {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/%s", pid, name)) // the only error is that of the pattern
	for _, file := range files {
		if text, err := os.ReadFile(file); err == nil {
			texts = append(texts, string(text))
		}
	}
	return texts
}

// ownCPU returns the CPU time of this process: the API server, the probes and their servers.
func ownCPU() (time.Duration, error) {
	var usage syscall.Rusage
	err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()), err
}

// switches returns the number of context switches of all threads, voluntary or not.
func (p *process) switches() (sum int, _ error) {
	for _, status := range readThreads(p.command.Process.Pid, "status") {
		for line := range strings.Lines(status) {
			name, value, _ := strings.Cut(line, ":")
			if strings.HasSuffix(name, "_ctxt_switches") {
				n, err := strconv.Atoi(strings.TrimSpace(value))
				if err != nil {
					return 0, fmt.Errorf("%s in /proc: %w", name, err)
				}
				sum += n
			}
		}
	}
	return sum, p.alive()
}

// memory returns the current and the peak resident memory of the process, in bytes.
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

// kernelMemory returns the unreclaimable kernel memory of the whole machine in bytes.
func kernelMemory() (int64, error) {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, err
	}
	var sum int64
	found := 0
	for line := range strings.Lines(string(text)) {
		// Large hash tables are in VmallocUsed.
		if fields := strings.Fields(line); fields[0] == "SUnreclaim:" || fields[0] == "VmallocUsed:" {
			kilobytes, err := strconv.ParseInt(fields[1], 10, 64)
			if err != nil {
				return 0, fmt.Errorf("/proc/meminfo: %w", err)
			}
			sum, found = sum+kilobytes<<10, found+1
		}
	}
	if found != 2 {
		return 0, errors.New("/proc/meminfo: SUnreclaim or VmallocUsed is missing")
	}
	return sum, nil
}

// rest waits until the process is almost idle, and returns the time since when it is. The caller must wait in another way
// for the work after a start, such as reading lists.
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

// logTail stores the end of the process's output.
type logTail struct {
	mu   sync.Mutex
	text []byte
}

// Write implements io.Writer.
func (j *logTail) Write(b []byte) (int, error) {
	const most = 1 << 16
	j.mu.Lock()
	defer j.mu.Unlock()
	j.text = append(j.text, b...)
	if len(j.text) > 2*most {
		j.text = append([]byte(nil), j.text[len(j.text)-most:]...)
	}
	return len(b), nil
}

// end returns the last lines.
func (j *logTail) end() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return string(j.text[max(0, len(j.text)-3000):])
}
