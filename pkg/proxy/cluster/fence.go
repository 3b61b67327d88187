package cluster

import (
	"fmt"
	"strconv"
	"strings"
)

// AnnotationConnectionLimits is the annotation of a Service with its [Fence]: any of "per-second=1000", "open=5000",
// "client-per-second=20" and "client-open=100", separated by commas.
const AnnotationConnectionLimits = "kube-proxy/connection-limits"

// MaxRate and MaxOpen are the largest numbers in a Fence. MaxOpen is smaller, because the kernel looks at each open connection, up to once a
// tick of its clock, under a lock.
const (
	MaxRate = 100_000
	MaxOpen = 5_000
)

// MaxClients is how many clients of a Service the kernel remembers. In nftables mode, clients beyond that have no bounds of their own, only
// those of the Service; a full set takes about 3 MB, as with session affinity. In iptables mode they are refused if clients have a rate.
const MaxClients = 20_000

// guardRate is the largest rate before a count of open connections. Many kernels (from Linux 5.19) count what the count drops too, and forget
// at most 9 of these in a tick, 900 a second at 100 Hz: a faster flood would leave no room long after it has ended.
const guardRate = 800

// Fence bounds the new connections of a Service in a second, and its open ones: of all clients together, and of each client. 0 is no bound.
type Fence struct {
	PerSecond, Open, ClientPerSecond, ClientOpen uint32
}

// EveryBound returns a Fence with all bounds.
func EveryBound() *Fence {
	return &Fence{PerSecond: 1, Open: 1, ClientPerSecond: 1, ClientOpen: 1}
}

// bound is a number of a Fence with its name in the annotation, and how it is described.
type bound struct {
	name  string
	value *uint32
	max   uint64
	text  string
}

func (f *Fence) bounds() [4]bound {
	return [...]bound{
		{"per-second", &f.PerSecond, MaxRate, "new a second"},
		{"open", &f.Open, MaxOpen, "open"},
		{"client-per-second", &f.ClientPerSecond, MaxRate, "new a second of each client"},
		{"client-open", &f.ClientOpen, MaxOpen, "open of each client"},
	}
}

// String describes the bounds: "1000 new a second, 100 open of each client".
func (f *Fence) String() string {
	var parts []string
	for _, b := range f.bounds() {
		if *b.value > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", *b.value, b.text))
		}
	}
	return strings.Join(parts, ", ")
}

// Within returns the smaller one of each bound.
func (f Fence) Within(o Fence) Fence {
	others := o.bounds()
	for i, b := range f.bounds() {
		if other := *others[i].value; other > 0 && (*b.value == 0 || other < *b.value) {
			*b.value = other
		}
	}
	return f
}

// Guarded returns the Fence with a rate before each count of open connections.
func (f Fence) Guarded() Fence {
	if f.Open > 0 {
		f = f.Within(Fence{PerSecond: guardRate})
	}
	if f.ClientOpen > 0 {
		f = f.Within(Fence{ClientPerSecond: guardRate})
	}
	return f
}

// AskedFence is the Fence that a Service asks for. Ignored says why the annotation cannot be read; "" if it can.
type AskedFence struct {
	Fence
	Ignored string
}

// askedFence reads the annotation; nil without one.
func askedFence(annotations map[string]string) *AskedFence {
	text, set := annotations[AnnotationConnectionLimits]
	if !set {
		return nil
	}
	fence, err := ParseFence(text)
	if err != nil {
		return &AskedFence{Ignored: fmt.Sprintf("the annotation %s: %v", AnnotationConnectionLimits, err)}
	}
	return &AskedFence{Fence: fence}
}

// ParseFence parses the annotation.
func ParseFence(text string) (f Fence, err error) {
	for item := range strings.SplitSeq(text, ",") {
		if !f.set(item) {
			return Fence{}, fmt.Errorf("%q is not per-second or client-per-second with = and a number from 1 to %d, nor open or client-open with one from 1 to %d", brief(item), MaxRate, MaxOpen)
		}
	}
	return f, nil
}

// set sets a bound from its text, and reports whether that is valid.
func (f *Fence) set(text string) bool {
	name, number, _ := strings.Cut(text, "=")
	value, err := strconv.ParseUint(strings.TrimSpace(number), 10, 32)
	for _, b := range f.bounds() {
		if b.name == strings.TrimSpace(name) && err == nil && value >= 1 && value <= b.max {
			*b.value = uint32(value)
			return true
		}
	}
	return false
}
