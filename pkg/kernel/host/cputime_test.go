//go:build linux

package host

import (
	"context"
	"errors"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// busy uses some processor time of the calling thread.
func busy(some time.Duration) {
	for before := used(unix.RUSAGE_THREAD); used(unix.RUSAGE_THREAD)-before < some; {
	}
}

// TestMeasureCPU checks that the time of this thread and of programs is counted, and sleeping is not.
func TestMeasureCPU(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	_, spent := MeasureCPU(t.Context())
	busy(20 * time.Millisecond)
	thread := spent()
	if thread < 20*time.Millisecond {
		t.Errorf("this thread spent %s, want at least 20ms", thread)
	}
	if err := exec.Command("sh", "-c", "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done").Run(); err != nil {
		t.Skip(err)
	}
	if program := spent() - thread; program < time.Millisecond {
		t.Errorf("a busy program spent %s", program)
	}
	start := time.Now()
	_, rested := MeasureCPU(t.Context())
	time.Sleep(50 * time.Millisecond)
	if spent, passed := rested(), time.Since(start); spent > passed/2 {
		t.Errorf("asleep for %s, and spent %s", passed, spent)
	}
}

// TestCountCPU checks that the time of another thread is added to the operation that it works for, but not to others.
func TestCountCPU(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	measured, spent := MeasureCPU(t.Context())
	_, other := MeasureCPU(t.Context())
	failed := errors.New("failed")
	work := func(ctx context.Context) {
		ended := make(chan error)
		go func() { ended <- CountCPU(ctx, func() error { busy(40 * time.Millisecond); return failed }) }()
		if err := <-ended; !errors.Is(err, failed) {
			t.Errorf("CountCPU returned %v", err)
		}
	}
	work(measured)
	work(t.Context()) // of no operation
	const least, most = 40 * time.Millisecond, 75 * time.Millisecond
	if spent := spent(); spent < least || spent > most {
		t.Errorf("the operation spent %s, want about %s", spent, least)
	}
	if spent := other(); spent >= least {
		t.Errorf("an operation without counted parts spent %s", spent)
	}
}
