//go:build linux

package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/config"
)

// TestKernelLogs shows how much each log level says about changes: nothing at level 0, one line for each sync at level 2,
// and one more for each changed Service at level 4. No line is long enough to be a dump.
func TestKernelLogs(t *testing.T) {
	t.Parallel()
	const changes, longest = 4, 600 // the longest errors contain the message of a tool and what to do
	w := newTrial(t)
	for level, want := range map[int]map[string]int{
		0: {"First sync succeeded": 1},
		2: {"First sync succeeded": 1, "Synced": 1 + changes},
		4: {"First sync succeeded": 1, "Synced": 1 + changes, "Service changed": changes},
	} {
		t.Run(fmt.Sprint("level ", level), func(t *testing.T) {
			w := *w
			w.T = t
			t.Cleanup(func() { w.wantLog(longest, want) }) // runs when the proxy has ended
			w.proxy(config.ProxyModeNFTables, fmt.Sprint("-v=", level))
			for i := range changes {
				w.moveEndpoint(i)
			}
		})
	}
}

// moveEndpoint gives the Service another IPv4 endpoint, and waits for the sync.
func (w *trial) moveEndpoint(n int) {
	w.Helper()
	w.programs(strings.Replace(nodePortService, "10.244.2.2", fmt.Sprint("10.244.2.", 3+n), 1))
}

// wantLog compares how often messages were logged, of those that report syncs and Services.
func (w *trial) wantLog(longest int, want map[string]int) {
	w.Helper()
	for _, message := range []string{"First sync succeeded", "Synced", "Service changed", "Service added"} {
		if got := strings.Count(w.log.String(), `] "`+message); got != want[message] {
			w.Errorf("%q was logged %d times, want %d", message, got, want[message])
		}
	}
	for line := range strings.Lines(w.log.String()) {
		if len(line) > longest {
			w.Errorf("a line of %d bytes, want at most %d: %s", len(line), longest, line)
		}
	}
}
