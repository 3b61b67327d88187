package nftables

import (
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/test/clusters"
)

// TestManyStickyEndpoints replaces one of many endpoints of a Service with session affinity, and starts again: the time does not grow with
// the square of their number, which would be seconds.
func TestManyStickyEndpoints(t *testing.T) {
	const many = 20_000
	runtime.LockOSThread() // which used measures
	defer runtime.UnlockOSThread()
	c := clusters.NewSized(1, 1)
	_, tables := fakes()
	b := newBackend(testOptions, tables[0])
	for i, endpoints := range []int{many, -many, -many} {
		c.Set(0, endpoints)
		service, _ := c.Services.Get(clusters.NameAt(0))
		service.Affinity = time.Hour
		if i == 2 {
			b = newBackend(testOptions, tables[0])
		}
		p := c.Plan()
		before := used(t)
		mustSync(t, b, p)
		if took := used(t) - before; i > 0 && took > 2*time.Second {
			t.Errorf("Sync %d takes %s", i, took)
		}
	}
}

// used returns the processor time of this thread, which does not depend on the load of the machine.
func used(t *testing.T) time.Duration {
	t.Helper()
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &usage); err != nil {
		t.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
