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

// launcher is a thread on which processes are started. They are to die with this
// process, and the kernel's means for that (PR_SET_PDEATHSIG) goes by the thread
// that started them: so it is one that stays.
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
		return errors.New("the laboratory is closed")
	}
}

func (l *launcher) stop() { close(l.done) }

// Cmd is a command to be run in a host, as [exec.Cmd], whose fields are set before
// it is started. It is in a process group of its own, so that the terminal's
// Ctrl-C does not reach it. The group is killed when the laboratory is closed; if
// this process dies before, the kernel kills the command, but not what the command
// itself has started.
//
// Only the network is the host's: files, /sys and process ids are the machine's.
type Cmd struct {
	*exec.Cmd
	host    *Host
	waiting sync.Once
	waited  error
	ended   chan struct{} // closed when waited is there
}

// Command prepares a command to be run inside the host.
func (h *Host) Command(name string, args ...string) *Cmd {
	command := exec.Command(name, args...)
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	// A grandchild may hold the output open; the host does not wait for it.
	command.WaitDelay = time.Second
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

// Wait waits for the command to end; see [exec.Cmd.Wait]. It may be called again,
// and gives the same result.
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

// Output runs the command and gives what it wrote to its standard output; see
// [exec.Cmd.Output]. The error carries what it wrote to its standard error.
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

// CombinedOutput runs the command and gives all that it wrote; see
// [exec.Cmd.CombinedOutput].
func (c *Cmd) CombinedOutput() ([]byte, error) {
	var output bytes.Buffer
	c.Stdout, c.Stderr = &output, &output
	err := c.Run()
	return output.Bytes(), err
}

// Kill ends the command's process group at once (SIGKILL) and waits for it. It
// does nothing when the command has ended by itself.
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
	_ = c.Wait() // its error only tells of the kill
	return nil
}

// endProcesses kills what is still running in the host.
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
