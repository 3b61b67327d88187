//go:build linux

package netns

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"
)

// launcher is a thread that starts processes. They must be killed when this process
// ends, and PR_SET_PDEATHSIG refers to the thread that started them, so that thread
// must live as long as the process.
type launcher struct {
	tasks chan func()
	done  chan struct{}
}

func newLauncher() *launcher {
	l := &launcher{tasks: make(chan func()), done: make(chan struct{})}
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		for {
			select {
			case task := <-l.tasks:
				task()
			case <-l.done:
				return
			}
		}
	}()
	return l
}

// run calls f on the launcher's thread.
func (l *launcher) run(f func() error) error {
	result := make(chan error, 1)
	select {
	case l.tasks <- func() { result <- f() }:
		return <-result
	case <-l.done:
		return errors.New("the lab is closed")
	}
}

func (l *launcher) stop() { close(l.done) }

// Cmd is a command that runs in a host, like [exec.Cmd], whose fields are set
// before it is started. It has its own process group, so that the terminal's Ctrl-C
// does not reach it. The group is killed when the lab is closed; if this process
// dies earlier, the kernel kills the command, but not the command's own child
// processes.
//
// Only the network is separate: the command shares files, /sys and process IDs with
// the machine.
type Cmd struct {
	*exec.Cmd
	host    *Host
	waiting sync.Once
	waited  error
	ended   chan struct{} // closed when waited is set
}

// Command prepares a command to be run inside the host.
func (h *Host) Command(name string, args ...string) *Cmd {
	command := exec.Command(name, args...)
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	// A grandchild may hold the output open; do not wait for it. A busy machine needs some time to read what was written.
	command.WaitDelay = 5 * time.Second
	return &Cmd{Cmd: command, host: h, ended: make(chan struct{})}
}

// Start starts the command inside the host; see [exec.Cmd.Start].
func (c *Cmd) Start() error {
	err := c.host.lab.launcher.run(func() error { return c.host.Do(c.Cmd.Start) })
	if err != nil {
		return fmt.Errorf("start %s in %s: %w", c.Path, c.host.Name, err)
	}
	c.host.mu.Lock()
	defer c.host.mu.Unlock()
	c.host.processes[c] = struct{}{}
	return nil
}

// Wait waits for the command to exit; see [exec.Cmd.Wait]. Later calls return the
// same result.
func (c *Cmd) Wait() error {
	c.waiting.Do(func() {
		c.waited = c.Cmd.Wait()
		close(c.ended)
		c.host.mu.Lock()
		defer c.host.mu.Unlock()
		delete(c.host.processes, c)
	})
	return c.waited
}

// Run starts the command and waits for it; see [exec.Cmd.Run].
func (c *Cmd) Run() error {
	if err := c.Start(); err != nil {
		return err
	}
	return c.Wait()
}

// Output runs the command and returns its standard output; see [exec.Cmd.Output].
// The error contains the standard error.
func (c *Cmd) Output() ([]byte, error) {
	var stdout, stderr bytes.Buffer
	c.Stdout = &stdout
	if c.Stderr == nil {
		c.Stderr = &stderr
	}
	if err := c.Run(); err != nil {
		return stdout.Bytes(), fmt.Errorf("%v in %s: %w: %s", c.Args, c.host.Name, err, bytes.TrimSpace(stderr.Bytes()))
	}
	return stdout.Bytes(), nil
}

// CombinedOutput runs the command and returns its standard output and standard
// error; see [exec.Cmd.CombinedOutput].
func (c *Cmd) CombinedOutput() ([]byte, error) {
	var output bytes.Buffer
	c.Stdout, c.Stderr = &output, &output
	err := c.Run()
	return output.Bytes(), err
}

// Kill kills the command's process group (SIGKILL) and waits for it. It does nothing
// if the command has already exited.
func (c *Cmd) Kill() error {
	select {
	case <-c.ended:
		return nil
	default:
	}
	err := syscall.Kill(-c.Process.Pid, syscall.SIGKILL)
	if err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("kill %s in %s: %w", c.Path, c.host.Name, err)
	}
	_ = c.Wait() // the error only reports the kill
	return nil
}

// endProcesses kills all processes that still run in the host.
func (h *Host) endProcesses() error {
	h.mu.Lock()
	processes := slices.Collect(maps.Keys(h.processes))
	h.mu.Unlock()
	var errs []error
	for _, process := range processes {
		errs = append(errs, process.Kill())
	}
	return errors.Join(errs...)
}
