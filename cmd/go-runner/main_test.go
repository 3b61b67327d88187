package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestMain lets this test program stand in for the command that is run.
func TestMain(m *testing.M) {
	switch os.Getenv("GO_RUNNER_TEST") {
	case "write":
		os.Stdout.WriteString("out\n")
		os.Stderr.WriteString("err\n")
		os.Exit(3)
	case "much":
		writeMuch()
		os.Exit(0)
	case "wait":
		os.Stdout.WriteString("ready\n")
		time.Sleep(time.Minute)
	}
	os.Exit(m.Run())
}

func TestRun(t *testing.T) {
	t.Setenv("GO_RUNNER_TEST", "write")
	for _, c := range []struct {
		name                string
		flags               []string
		log, stdout, stderr string // what each must hold
	}{
		{"file only", nil, "out err", "", ""},
		{"also stdout", []string{"--also-stdout"}, "out err", "out err", ""},
		{"errors apart", []string{"--redirect-stderr=false"}, "out", "", "err"},
	} {
		t.Run(c.name, func(t *testing.T) {
			log := filepath.Join(t.TempDir(), "log")
			if err := os.WriteFile(log, []byte("before "), 0o600); err != nil {
				t.Fatal(err)
			}
			var stdout, stderr bytes.Buffer
			code, err := run(append(append([]string{"--log-file=" + log}, c.flags...), os.Args[0]), &stdout, &stderr)
			if code != 3 || err != nil {
				t.Errorf("run = %d, %v; want 3", code, err)
			}
			logged, _ := os.ReadFile(log)
			for _, got := range []struct{ where, text, want string }{
				{"log", string(logged), "before " + c.log}, {"stdout", stdout.String(), c.stdout}, {"stderr", stderr.String(), c.stderr},
			} {
				if text := strings.Join(strings.Fields(got.text), " "); text != strings.TrimSpace(got.want) {
					t.Errorf("%s holds %q, want %q", got.where, text, got.want)
				}
			}
		})
	}
}

// TestFullDisk runs a command whose log cannot be written: it goes on, and standard output has its output.
func TestFullDisk(t *testing.T) {
	t.Setenv("GO_RUNNER_TEST", "write")
	var stdout bytes.Buffer
	code, err := run([]string{"--log-file=/dev/full", "--also-stdout", os.Args[0]}, &stdout, os.Stderr)
	if code != 3 || err != nil || stdout.String() != "out\nerr\n" {
		t.Errorf("run = %d, %v, standard output %q; want 3 and all output", code, err, &stdout)
	}
}

func TestRunWithoutCommand(t *testing.T) {
	var out bytes.Buffer
	for _, c := range []struct {
		args []string
		code int
	}{
		{nil, exitUsage},
		{[]string{"--unknown"}, exitUsage},
		{[]string{"/does/not/exist"}, exitCannotRun},
		{[]string{"--log-file=/does/not/exist", os.Args[0]}, exitCannotRun},
	} {
		if code, _ := run(c.args, &out, &out); code != c.code {
			t.Errorf("run(%q) = %d, want %d", c.args, code, c.code)
		}
	}
}

// readySignal sends this process a signal once the command has written something.
type readySignal struct{ t *testing.T }

func (r readySignal) Write(p []byte) (int, error) {
	if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
		r.t.Error(err)
	}
	return len(p), nil
}

// TestSignal sends a signal, which the command must get and this process survive.
func TestSignal(t *testing.T) {
	t.Setenv("GO_RUNNER_TEST", "wait")
	code, err := run([]string{os.Args[0]}, readySignal{t}, os.Stderr)
	if want := 128 + int(syscall.SIGTERM); code != want || err != nil {
		t.Errorf("run = %d, %v; want %d", code, err, want)
	}
}
