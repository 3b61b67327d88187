//go:build linux

// Package squatter is a process that takes the abstract unix socket of the lock on a network namespace, as an attacker or as
// kube-proxy v0.1.0 does. It is the test program itself, started again, by any user:
//
//	func TestMain(m *testing.M) { squatter.Main(); m.Run() }
//
//	command := exec.Command(squatter.Path); command.Env = squatter.Squatter{What: squatter.Answer}.Env()
package squatter

import (
	"fmt"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// What a squatter does. It prints a line when it has the name.
const (
	Bind    = "bind"    // binds the name and does not listen
	Full    = "full"    // listens and fills its own queue
	Silent  = "silent"  // listens and accepts, and says nothing
	Answer  = "answer"  // answers as kube-proxy v0.1.0 does
	Poll    = "poll"    // tries to bind the name every 0.2 ms, and answers then; it prints a line before
	Connect = "connect" // connects to the name all the time, and has it never; it prints a line before
)

// Path is the program of the process that starts it. Other users cannot reach it by its name, in a folder of go test.
const Path = "/proc/self/exe"

const (
	variable = "SQUATTER"
	name     = "@kube-proxy-lock"
)

// Squatter is such a process. Without more than What it is what a pod with hostNetwork and uid 0 may be.
type Squatter struct {
	What string
	// Capable keeps the capabilities.
	Capable bool
}

// Env is its environment.
func (s Squatter) Env() []string {
	return append(os.Environ(), fmt.Sprintf("%s=%s %t", variable, s.What, s.Capable))
}

// Main is the squatter's main function; it returns in another process.
func Main() {
	var s Squatter
	if n, _ := fmt.Sscan(os.Getenv(variable), &s.What, &s.Capable); n == 0 {
		return
	}
	runtime.LockOSThread() // the first thread is what /proc and others see
	if err := s.run(); err != nil {
		fmt.Fprintln(os.Stderr, "squatter:", err)
		os.Exit(1)
	}
}

func (s Squatter) run() error {
	what := s.What
	if !s.Capable {
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		if err := unix.Capset(&header, &make([]unix.CapUserData, 2)[0]); err != nil {
			return err
		}
	}
	if what == Connect {
		fmt.Println(what)
		for {
			if fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK, 0); err == nil {
				_ = unix.Connect(fd, &unix.SockaddrUnix{Name: name})
				_ = unix.Close(fd)
			}
		}
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		return err
	}
	if what == Poll {
		fmt.Println(what)
	}
	err = unix.Bind(fd, &unix.SockaddrUnix{Name: name})
	for ; what == Poll && err == unix.EADDRINUSE; err = unix.Bind(fd, &unix.SockaddrUnix{Name: name}) {
		time.Sleep(200 * time.Microsecond)
	}
	if err != nil {
		return err
	}
	return hold(fd, what)
}

// hold keeps the name.
func hold(fd int, what string) error {
	queue := 16
	switch what {
	case Bind:
		fmt.Println(what)
		return unix.Pause()
	case Full:
		queue = 0
	}
	if err := unix.Listen(fd, queue); err != nil {
		return err
	}
	for what == Full {
		own, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			return err
		}
		if unix.Connect(own, &unix.SockaddrUnix{Name: name}) == unix.EAGAIN {
			fmt.Println(what)
			return unix.Pause()
		}
	}
	if what != Poll {
		fmt.Println(what)
	}
	for {
		connection, _, err := unix.Accept(fd)
		if err != nil {
			return err
		}
		if what != Silent {
			_, _ = unix.Write(connection, fmt.Appendf(nil, `{"pid":%d,"mode":"iptables","version":"v0.1.0","since":"2026-11-22T00:00:00Z"}`+"\n", os.Getpid()))
		}
		// Connections are left open, as v0.1.0 does.
	}
}
