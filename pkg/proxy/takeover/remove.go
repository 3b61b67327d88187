package takeover

import (
	"context"
	"slices"
	"time"

	"k8s.io/klog/v2"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// drainPause is the time between two looks at what connections use.
const drainPause = 30 * time.Second

// removeAll removes the rules of other modes in the families in which those of this proxy are in force, each time there are more
// such families, until ctx ends. So every new connection meets one or the other, and a family that fails keeps the rules that it had.
// Rules that cannot be removed are logged and stay: a packet may meet them before ours.
//
// The proxy that wrote them may still be ending, as in a rolling update that starts the new Pod first, and write once more: so
// they are removed again if they are there after some time. Those that come back later are another proxy's, which Run reports.
//
// What connections pass through is removed when they have ended.
func (o *Observer) removeAll(ctx context.Context) {
	var families []cluster.Family
	var pauses []time.Duration // until they are removed again
	var again <-chan time.Time
	var used []Mode
	for {
		select {
		case <-ctx.Done():
			return
		case families = <-o.grown:
			used = o.remove(ctx, o.config.Others, families)
			pauses = []time.Duration{5 * time.Second, 10 * time.Second, 30 * time.Second}
		case <-again:
			modes := used
			if len(pauses) > 0 {
				pauses = pauses[1:]
				modes = slices.DeleteFunc(slices.Clone(o.config.Others), func(m Mode) bool {
					present, err := m.Present(ctx, families...)
					return err != nil || !present
				})
			}
			used = o.remove(ctx, modes, families)
		}
		again = nil
		switch {
		case len(pauses) > 0:
			again = time.After(pauses[0])
			continue
		case len(used) > 0:
			again = time.After(drainPause)
		}
		o.mu.Lock()
		o.checked, o.families = true, families
		o.mu.Unlock()
	}
}

// remove removes the rules of modes. It returns those of which something is left because connections use it.
func (o *Observer) remove(ctx context.Context, modes []Mode, families []cluster.Family) (used []Mode) {
	logger := klog.FromContext(ctx)
	for _, m := range modes {
		left, err := m.drain(ctx, families)
		if err != nil {
			logger.Error(err, "Cannot remove the rules of another mode; stop this proxy and run kube-proxy --cleanup, or restart the node", "mode", m.Name)
		}
		if left {
			logger.V(2).Info("Connections pass through what another mode left; it is removed when they have ended", "mode", m.Name)
			used = append(used, m)
		}
		o.setAbsent(m, err == nil && !left)
	}
	return used
}

// drain removes the rules of the mode, and reports whether something is left because connections use it.
func (m Mode) drain(ctx context.Context, families []cluster.Family) (left bool, err error) {
	if d, ok := m.Remover.(backend.Drainer); ok {
		return d.Drain(ctx, families...)
	}
	return false, m.Remove(ctx, families...)
}
