// Package backend says what a dataplane has to be able to do. Each folder below holds one, written in its
// own rule language; none knows another, and what they have in common is the plan they render.
package backend

import (
	"context"
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// Backend makes the kernel do what a plan says. One goroutine uses it.
type Backend interface {
	// Sync takes the whole desired state and may be repeated. It writes only what differs from what the
	// kernel holds. A family that fails keeps what it had and does not hold up the other; the next Sync
	// reads the kernel again before it writes there.
	Sync(ctx context.Context, p *plan.Plan) []Result
	// Check looks, at next to no cost, whether somebody else changed what this backend wrote. What it finds
	// is repaired by the next Sync.
	Check(ctx context.Context) ([]Drift, error)
	// Cleanup removes everything that this backend, or an earlier program in its place, wrote.
	Cleanup(ctx context.Context) error
	// Close releases what the backend holds open and leaves the rules in force.
	Close() error
}

// PacketCounter is what a Backend may be besides: one whose rules count packets of a family that users ask about. A count
// begins anew when the rule is written anew, and is 0 where there is no such rule. Any goroutine may read it at any time.
type PacketCounter interface {
	// InvalidDropped is how many packets were dropped because conntrack took them for invalid.
	InvalidDropped(family cluster.Family) (uint64, error)
	// LocalhostAccepted is how many connections to a node port on a loopback address were let through, by their first packet.
	LocalhostAccepted(family cluster.Family) (uint64, error)
}

// Result is how a Sync went in one address family.
type Result struct {
	Family   cluster.Family
	Duration time.Duration
	// Read tells that the kernel's state was not known and had to be read.
	Read bool
	// Elements and Rules count what was written: operations on elements of maps and sets, and rules.
	Elements, Rules int
	// Tables count the rules in each table, where rules follow the Services.
	Tables []Table
	// Heavy tells that what was written costs more than what changed: such syncs keep their distance.
	Heavy bool
	// Refused are the ports of Services that the kernel does not take, sorted by name. They are left out; everything else
	// is in force. Err has each one's cause too, but only when it was tried.
	Refused []Refusal
	// Again is when there is something to do though nothing changes: to try again what was refused. 0 is never.
	Again time.Duration
	Err   error
}

// Table is how many rules of this proxy a table has, and how many of them the last Sync wrote.
type Table struct {
	Name           string
	Rules, Written int
}

// Refusal is a port of a Service that is left out.
type Refusal struct {
	Service cluster.ServiceName
	// Port is namespace/name:port/protocol, as users write them.
	Port  string
	Cause error
}

// Drift is a change by somebody else.
type Drift struct {
	Family cluster.Family
	// What differs, and the program that wrote last as the kernel knows it, in words.
	What, Writer string
	// Rival reports that there is something now that only another kube-proxy writes.
	Rival bool
}
