// Package backend defines the interface of dataplanes. Each subpackage implements one, with its own kind of rules; they
// are independent of each other, and all render the same plan.
package backend

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// Backend programs plans into the kernel. It is used by one goroutine.
type Backend interface {
	// Sync programs the whole desired state in the given families, or in all if none are given. It is idempotent and
	// writes only differences to the kernel's state. A family that fails keeps its rules and does not affect the other
	// one; the next Sync reads the kernel's state again before it writes that family. The error is a *RefusedError if
	// it is about the rules themselves: proxy.Quarantine then syncs without the ports at fault.
	Sync(ctx context.Context, p *plan.Plan, families ...cluster.Family) []Result
	// Check detects, at low cost, whether rules of this backend were modified externally. The next Sync repairs them.
	Check(ctx context.Context) ([]Drift, error)
	// Modified returns a channel that receives a value when Check should be called: rules may have been modified
	// externally since the last call, or that call has work left. It is nil if only Check itself finds that out, which
	// must then be called periodically. It is the same channel for the life of the Backend.
	Modified() <-chan struct{}
	// CheckSoon reports whether Check has parts left: it is called again soon, not after the usual time.
	CheckSoon() bool
	// ReadEarly reads the kernel's state before there is a plan, for the first Sync, which then reads only what has changed since.
	// It writes nothing, and leaves to that Sync what it cannot read. It returns early if ctx ends. No other method may be called
	// meanwhile.
	ReadEarly(ctx context.Context)
	// Counters returns the kernel's counters.
	Counters() KernelCounters
	// Cleanup removes everything that this backend, or a predecessor with the same role, wrote.
	Cleanup(ctx context.Context) error
	// Close releases resources and leaves the rules in place.
	Close() error
}

// KernelCounters read the kernel's counters in the rules of a Backend; a field is nil if the rules have no such counter. All are safe for
// concurrent use. A packet counter restarts at 0 when its rule is replaced, and is 0 if there is no such rule.
type KernelCounters struct {
	// Names are those of metrics.
	Names MetricNames
	// InvalidDropped returns the number of packets dropped because conntrack considers them invalid.
	InvalidDropped func(cluster.Family) (uint64, error)
	// LocalhostAccepted returns the number of accepted connections to node ports on a loopback address, counted by their first
	// packet. LocalhostRejected returns the number of rejected packets to node ports there (plan.Localhost), by protocol; it has
	// no entries before the rules are first written.
	LocalhostAccepted func(cluster.Family) (uint64, error)
	LocalhostRejected func(cluster.Family) (map[cluster.Protocol]uint64, error)
	// Clients returns how many clients are remembered for session affinity, in maps of a limited size; none before the rules are
	// first written.
	Clients func(cluster.Family) (Clients, error)
	// Connections counts connections.
	Connections ConnectionCounter
}

// Clients are the remembered clients of a family.
type Clients struct {
	// Fullest is the number of clients in the fullest map, divided by its size.
	Fullest float64
	// Refused counts the connections whose client was not remembered because a map was full. It restarts at 0 when the table is
	// made again.
	Refused uint64
}

// MetricNames are the names, without the prefix kubeproxy_, of metrics that upstream names differently for each proxy mode.
// A metric without a name is not exposed.
type MetricNames struct {
	// SyncFailures counts failed syncs, PartialSyncFailures those that wrote only changes, CleanupFailures failed
	// removals of unused rules.
	SyncFailures, PartialSyncFailures, CleanupFailures string
	// TableRules is the number of rules in each of Result.Tables, TableRulesWritten the number that the last sync wrote.
	TableRules, TableRulesWritten string
	// InvalidDropped, LocalhostAccepted and LocalhostRejected are the KernelCounters of these names; the first two are summed over
	// the families.
	InvalidDropped, LocalhostAccepted, LocalhostRejected string
	// LocalhostListeners is the number of node ports that the proxy itself listens on, LocalhostListenFailures the number
	// of failed attempts to listen.
	LocalhostListeners, LocalhostListenFailures string
}

// ConnectionCounter reads the counters of connections.
type ConnectionCounter interface {
	// Connections reads the kernel's counters for the routes of a family and adds them to the result. A rule that was
	// replaced starts at 0 again; routes that are not programmed count nothing. Endpoints are read only if endpoints is
	// true, because there may be many of them. It returns early, with an error, if ctx ends.
	Connections(ctx context.Context, family cluster.Family, routes iter.Seq[*plan.Route], endpoints bool) (*Connections, error)
	// Counts returns what the rules of a family count. It may change with each Sync.
	Counts(family cluster.Family) Counting
}

// Connections are counters of the kernel. What was not counted is absent.
type Connections struct {
	// At is when a SharedCounter began to read them; zero without one.
	At time.Time
	// Frontends counts the connections that were sent to an endpoint. A retransmitted first packet counts again.
	Frontends map[plan.Frontend]uint64
	// Refused counts the packets that were rejected or dropped because there is no endpoint.
	Refused map[plan.Frontend]uint64
	// Limited counts the first packets that were dropped because of plan.Route.Fence. Frontends includes them.
	Limited map[plan.Frontend]uint64
	// Endpoints counts the connections that were sent to an endpoint, apart for each place in the rules that counts them.
	Endpoints map[EndpointCounter]uint64
}

// NewConnections returns empty Connections.
func NewConnections() *Connections {
	return &Connections{Frontends: map[plan.Frontend]uint64{}, Refused: map[plan.Frontend]uint64{}, Limited: map[plan.Frontend]uint64{}, Endpoints: map[EndpointCounter]uint64{}}
}

// Add adds the counters of another family.
func (c *Connections) Add(o *Connections) {
	if c.At.IsZero() || o.At.Before(c.At) {
		c.At = o.At
	}
	maps.Copy(c.Frontends, o.Frontends)
	maps.Copy(c.Refused, o.Refused)
	maps.Copy(c.Limited, o.Limited)
	maps.Copy(c.Endpoints, o.Endpoints)
}

// ByEndpoint returns the sums of Endpoints by endpoint.
func (c *Connections) ByEndpoint() map[PortEndpoint]uint64 {
	sums := make(map[PortEndpoint]uint64, len(c.Endpoints))
	for of, n := range c.Endpoints {
		sums[of.PortEndpoint] += n
	}
	return sums
}

// PortEndpoint is an endpoint of one port of a Service.
type PortEndpoint struct {
	// Port is the name of the Service's port as in plan.Route.Name.
	Port     string
	Protocol cluster.Protocol
	Endpoint netip.AddrPort
}

// EndpointCounter identifies a place in the rules that counts an endpoint's connections. It is replaced as a whole: its count
// then restarts at 0.
type EndpointCounter struct {
	PortEndpoint
	// In is the chain or map. Frontend is set if the map has an element for each frontend.
	In       string
	Frontend plan.Frontend
}

// Result is the result of a Sync in one address family.
type Result struct {
	Family   cluster.Family
	Duration time.Duration
	// Read reports whether the kernel's state was read, in this Sync or before the first one.
	Read bool
	// Elements and Rules count what was written: operations on elements of maps and sets, and rules.
	Elements, Rules int
	// Tables counts the rules in each table, for backends with rules for each Service.
	Tables []Table
	// Refused are the quarantined ports of Services, whose rules the kernel refuses, sorted by name. Everything else is
	// programmed if Err is nil.
	Refused []Refusal
	// InForce is the plan that the rules implement if Err is nil: the given one, except for quarantined ports. Nil is the given one.
	InForce *plan.Plan
	// Failed counts the failed attempts of this Sync before the last one.
	Failed int
	// Again is when to sync again without a change, to retry what was refused; 0 is never.
	Again time.Duration
	Err   error
}

// Table is the number of this proxy's rules in a table, and the number of them that the last Sync wrote.
type Table struct {
	Name           string
	Rules, Written int
}

// Refusal is a port of a Service that the kernel refuses.
type Refusal struct {
	Family  cluster.Family
	Service cluster.ServiceName
	// Port is namespace/name:port/protocol, as users write them.
	Port string
	// Kept reports that the port's earlier rules are in force; otherwise it has none.
	Kept  bool
	Cause error
}

// String describes the refusal in one line.
func (r Refusal) String() string {
	text := fmt.Sprintf("%s: %v", r.Port, r.Cause)
	if r.Kept {
		text += "; its earlier rules stay in force"
	}
	return text
}

// MaxDetails is the maximum number of details of a Drift.
const MaxDetails = 10

// Drift is an external modification of the rules.
type Drift struct {
	Family cluster.Family
	// What describes the difference. Writer is the last program that wrote, according to the kernel.
	What, Writer string
	// Details name the chains, sets and elements that differ, at most MaxDetails; nil if they are not known.
	Details []string
	// Rival reports that there are now objects that only another kube-proxy writes.
	Rival bool
}
