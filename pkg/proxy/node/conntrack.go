package node

import "time"

const (
	// maxTracked bounds the limit that is computed from the number of CPUs: on a machine with hundreds of them the table
	// would take gigabytes.
	maxTracked = 1 << 20
	// trackedPerBucket is how many connections share a bucket of the kernel's hash table when it is full.
	trackedPerBucket = 4

	prefix         = "net/netfilter/nf_conntrack_"
	trackedMax     = prefix + "max"
	trackedBuckets = prefix + "buckets"
)

// Conntrack configures connection tracking. A timeout of 0 leaves the kernel's setting unchanged.
type Conntrack struct {
	// MaxPerCore is the limit of tracked connections for each CPU, and Min the least limit. MaxPerCore 0 leaves the limit
	// unchanged.
	MaxPerCore, Min int32
	// TCPEstablished and TCPCloseWait are how long an idle TCP connection in these states is tracked.
	TCPEstablished, TCPCloseWait time.Duration
	// TCPBeLiberal accepts TCP packets outside of the window as valid.
	TCPBeLiberal bool
	// UDP and UDPStream are how long an idle UDP flow is tracked, before and after it was answered.
	UDP, UDPStream time.Duration
}

// Settings returns the kernel settings for a machine with this number of CPUs, in the order in which they are to be written.
func (c *Conntrack) Settings(cpus int) []Setting {
	var all []Setting
	if c.MaxPerCore > 0 {
		limit := max(min(int64(c.MaxPerCore)*int64(cpus), maxTracked), int64(c.Min))
		all = append(all, Setting{Name: trackedMax, Value: limit, AtLeast: true},
			Setting{Name: trackedBuckets, Value: limit / trackedPerBucket, AtLeast: true})
	}
	seconds := func(name string, d time.Duration) {
		if d > 0 {
			all = append(all, Setting{Name: prefix + name, Value: int64((d + time.Second - 1) / time.Second)})
		}
	}
	seconds("tcp_timeout_established", c.TCPEstablished)
	seconds("tcp_timeout_close_wait", c.TCPCloseWait)
	if c.TCPBeLiberal {
		all = append(all, Setting{Name: prefix + "tcp_be_liberal", Value: 1})
	}
	seconds("udp_timeout", c.UDP)
	seconds("udp_timeout_stream", c.UDPStream)
	return all
}
