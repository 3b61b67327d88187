package backend

import (
	"context"
	"errors"
	"math"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// Mode is a proxy mode of this program. It works on the network namespace in which its methods are called.
type Mode interface {
	Remover
	Renderer
	Prober
	// Open opens a Backend for these families. It fails if the Backend could not write anything, for example because a
	// program or a privilege is missing.
	Open(ctx context.Context, families ...cluster.Family) (Backend, error)
	// Prepare sets up what plans with these options need and what needs more privileges than serving (--init-only).
	Prepare(ctx context.Context, planning *plan.Options) error
	// WithoutRawSockets describes, as a clause, what does not work without CAP_NET_RAW; "" is nothing.
	WithoutRawSockets() string
	// Untraceable returns why the trace of nf_tables does not show this mode's rules on this node; nil if it does.
	Untraceable(ctx context.Context) error
	// FastPath returns why this mode cannot forward connections by a flowtable on this node; nil if it can.
	FastPath(ctx context.Context, families ...cluster.Family) error
	// Fences returns why this mode cannot bound connections on this node; nil if it can.
	Fences(ctx context.Context, families ...cluster.Family) error
}

// Remover finds and removes the rules of a proxy mode, whichever program wrote them, in the given families, or in all if none
// are given.
type Remover interface {
	// Present reports whether there are any rules of this mode.
	Present(ctx context.Context, families ...cluster.Family) (bool, error)
	// Remove removes everything that belongs to this mode, and succeeds if there is nothing. What cannot be removed does
	// not prevent the rest from being removed, and is part of the error.
	Remove(ctx context.Context, families ...cluster.Family) error
}

// Drain removes those objects of a mode that no established connection uses. It keeps new connections away from the rest, and returns
// what is left, if anything; call it again to remove what is no longer used. last is what the previous call left, or nil: if there is more
// now, Drain changes nothing, and the error is [ErrRival].
type Drain func(ctx context.Context, last Left, families ...cluster.Family) (left Left, err error)

// Left holds the names of the objects that a Drain left.
type Left map[string]bool

// ErrRival means that another proxy writes the rules that should be removed.
var ErrRival = errors.New("another proxy writes it again")

// OrAll returns the given families, or all if there are none.
func OrAll(families []cluster.Family) []cluster.Family {
	if len(families) == 0 {
		return []cluster.Family{cluster.IPv4, cluster.IPv6}
	}
	return families
}

// Prober reports what a Mode needs of a machine.
type Prober interface {
	// Tools returns the programs that the mode runs for these families.
	Tools(ctx context.Context, families ...cluster.Family) []Tool
	// Variant returns what Features must know about this network namespace.
	Variant(ctx context.Context) (string, error)
	// Features tries each kernel feature that the rules of a family need. It writes rules and leaves them behind, so
	// call it in a temporary network namespace. The error means that nothing could be tried.
	Features(ctx context.Context, variant string, family cluster.Family) ([]Feature, error)
}

// Tool is a program that a mode runs. Err is the reason if it cannot be run.
type Tool struct {
	Name, Version string
	Err           error
}

// Feature is a kernel feature that rules need, and the module that provides it. Err is the reason if it does not work.
type Feature struct {
	Name, Module string
	Err          error
}

// Families are the address families to open a Backend for.
type Families struct {
	All []cluster.Family
	// Required means that all families are required, FirstRequired that the first one is, as the primary family of the node.
	Required, FirstRequired bool
}

// OpenUsable opens a Backend for those of the families that work, and returns them. It tries all families first, and
// then each one alone. leftOut is the reason if not all are returned.
func OpenUsable(ctx context.Context, mode Mode, wanted Families) (opened Backend, families []cluster.Family, leftOut, err error) {
	opened, err = mode.Open(ctx, wanted.All...)
	if err == nil {
		return opened, wanted.All, nil, nil
	}
	if len(wanted.All) < 2 || wanted.Required || ctx.Err() != nil {
		return nil, nil, nil, err
	}
	candidates := wanted.All
	if wanted.FirstRequired {
		candidates = candidates[:1]
	}
	for _, family := range candidates {
		if opened, failed := mode.Open(ctx, family); failed == nil {
			return opened, []cluster.Family{family}, err, nil
		}
	}
	return nil, nil, nil, err
}

// AwaitUsable waits until a Backend can be opened for a family that was left out. It tries that after awaitFirst, then after
// twice as long each time up to awaitLast. It returns false if ctx ends before.
func AwaitUsable(ctx context.Context, mode Mode, family cluster.Family) bool {
	backoff := wait.Backoff{Duration: awaitFirst, Factor: 2, Cap: awaitLast, Steps: math.MaxInt}
	ended := backoff.DelayFunc().Until(ctx, false, true, func(ctx context.Context) (bool, error) {
		opened, err := mode.Open(ctx, family)
		if err == nil {
			_ = opened.Close() // nothing was written
		}
		return err == nil, nil
	})
	return ended == nil
}

// The times between attempts to open a family that was left out. Each attempt may run a few programs.
const (
	awaitFirst = 5 * time.Second
	awaitLast  = 5 * time.Minute
)
