//go:build linux

package main

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestLossyFlow checks that lost and late packets are not measured, and that a flow that loses half of them fails.
func TestLossyFlow(t *testing.T) {
	const burst = 2 * roundTrips // the number of the first packet of a burst, if no round trip was repeated
	for _, c := range []struct {
		name string
		path func(number int) treatment
		fail string
	}{
		{"nothing lost", func(int) treatment { return passed }, ""},
		{"every 20th lost", func(n int) treatment { return when(n%20 == 19, lost) }, ""},
		{"every 20th late", func(n int) treatment { return when(n%20 == 19, late) }, ""},
		{"end of the burst lost", func(n int) treatment { return when(n >= burst+150, lost) }, ""},
		{"every second lost", func(n int) treatment { return when(n%2 == 1, lost) }, "25 round trips were lost, and 0 completed"},
		{"half of the burst lost", func(n int) treatment { return when(n >= burst+80, lost) }, "of 200 packets of a burst arrived"},
		{"everything late", func(int) treatment { return late }, "25 round trips were lost, and 0 completed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			trips, each, err := lossyFlow(t, c.path).round()
			if c.fail != "" {
				if err == nil || !strings.Contains(err.Error(), c.fail) {
					t.Errorf("got error %v, want %q", err, c.fail)
				}
				return
			}
			if err != nil || len(trips) != roundTrips || each <= 0 {
				t.Errorf("got %d round trips, %v for each packet, and error %v", len(trips), each, err)
			}
		})
	}
}

// treatment is what happens to a packet on its way. A late packet arrives together with the next one.
type treatment int

const (
	passed treatment = iota
	lost
	late
)

func when(yes bool, t treatment) treatment {
	if yes {
		return t
	}
	return passed
}

// lossyFlow returns a flow whose path treats the packets by their number, which counts both directions.
func lossyFlow(t *testing.T, path func(number int) treatment) *flow {
	t.Helper()
	pair := func() [2]int {
		fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		return fds
	}
	client, server := pair(), pair()
	f := &flow{client: client[0], server: server[0], lossy: true}
	var number atomic.Int64
	var relays sync.WaitGroup
	for _, way := range [][2]int{{client[1], server[1]}, {server[1], client[1]}} {
		relays.Go(func() {
			var delayed [][]byte
			for {
				buffer := make([]byte, packetLength)
				n, err := unix.Read(way[0], buffer)
				if err != nil || n == 0 {
					return
				}
				delayed = append(delayed, buffer[:n])
				switch path(int(number.Add(1)) - 1) {
				case lost:
					delayed = delayed[:len(delayed)-1]
				case passed:
					for _, packet := range delayed {
						if _, err := unix.Write(way[1], packet); err != nil {
							return
						}
					}
					delayed = nil
				}
			}
		})
	}
	t.Cleanup(func() {
		if err := f.close(); err != nil {
			t.Error(err)
		}
		relays.Wait()
		for _, fd := range []int{client[1], server[1]} {
			if err := unix.Close(fd); err != nil {
				t.Error(err)
			}
		}
	})
	for _, fd := range []int{f.client, f.server} {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, 4*burstLength*packetLength); err != nil {
			t.Fatal(err)
		}
		if err := wait(fd, 250*time.Millisecond); err != nil {
			t.Fatal(err)
		}
	}
	return f
}
