//go:build linux

package main

import "time"

// tempo is how fast the demo sends, and how long it waits.
type tempo struct {
	// limit is the time limit of the demo, which normally takes a quarter of that; answer that of a change.
	limit, answer time.Duration
	// timeout is that of connections that should be answered: TCP may have to retransmit on a busy machine.
	timeout time.Duration
	// every is the time between two connections that look for a change; 0 means a millisecond. rate is the number of
	// connections per second to a Service that does not change.
	every time.Duration
	rate  int
	// exit is the time limit of the proxy's exit.
	exit time.Duration
}

// tempoOf returns the tempo of an ordinary machine, or of a slow one, which would be busy with the connections alone and could
// not run the proxy.
func tempoOf(slow bool) tempo {
	if slow {
		return tempo{limit: 30 * time.Minute, answer: 10 * time.Minute, timeout: 30 * time.Second, every: 200 * time.Millisecond,
			rate: 5, exit: time.Minute}
	}
	return tempo{limit: 55 * time.Second, answer: 10 * time.Second, timeout: 3 * time.Second, rate: 100, exit: 5 * time.Second}
}
