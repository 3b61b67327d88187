package restart

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// usage is what a proxy holds at one moment.
type usage struct {
	goroutines, descriptors int
	// heap is in use after a garbage collection, resident is the process's memory, both in bytes.
	heap, resident int
	// clients are those that the kernel remembers for session affinity, flows all entries of connection tracking, and udpFlows
	// those of UDP that are sent to an endpoint of a Service that comes and goes.
	clients, flows, udpFlows int
	// rules is the listing of all rules in the kernel, its lines sorted.
	rules string
}

func (u usage) String() string {
	return fmt.Sprintf("%d goroutines, %d descriptors, heap %d kB, resident %d kB, %d lines of rules, %d clients, %d flows, %d UDP flows to endpoints",
		u.goroutines, u.descriptors, u.heap>>10, u.resident>>10, strings.Count(u.rules, "\n"), u.clients, u.flows, u.udpFlows)
}

// slopes describes how fast each value grows in an hour, by the line of least squares through the samples.
func slopes(samples []usage, duration time.Duration) string {
	of := func(value func(usage) int) float64 {
		n, sumX, sumY, sumXY, sumXX := float64(len(samples)), 0.0, 0.0, 0.0, 0.0
		for i, sample := range samples {
			x, y := float64(i)*duration.Hours()/n, float64(value(sample))
			sumX, sumY, sumXY, sumXX = sumX+x, sumY+y, sumXY+x*y, sumXX+x*x
		}
		return (n*sumXY - sumX*sumY) / (n*sumXX - sumX*sumX)
	}
	return fmt.Sprintf("%+.1f goroutines, %+.1f descriptors, heap %+.0f kB, resident %+.0f kB, %+.0f lines of rules, %+.0f clients, %+.0f flows, %+.0f UDP flows to endpoints",
		of(func(u usage) int { return u.goroutines }), of(func(u usage) int { return u.descriptors }),
		of(func(u usage) int { return u.heap >> 10 }), of(func(u usage) int { return u.resident >> 10 }),
		of(func(u usage) int { return strings.Count(u.rules, "\n") }),
		of(func(u usage) int { return u.clients }), of(func(u usage) int { return u.flows }), of(func(u usage) int { return u.udpFlows }))
}

// TestSlopes computes the slopes of values that grow by one in each sample, and of values that do not grow.
func TestSlopes(t *testing.T) {
	var samples []usage
	for i := range 10 {
		samples = append(samples, usage{goroutines: 5 + i, descriptors: 7, heap: (100 - i) << 10, resident: 3 << 10, clients: 2 * i, flows: 4, udpFlows: 1})
	}
	if got, want := slopes(samples, time.Hour), "+10.0 goroutines, +0.0 descriptors, heap -10 kB, resident +0 kB, +0 lines of rules, +20 clients, +0 flows, +0 UDP flows to endpoints"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
