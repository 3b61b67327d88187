package takeover

import (
	"context"
	"errors"
	"slices"
	"time"

	"k8s.io/klog/v2"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

const (
	// drainPause is the time between two looks at what connections use.
	drainPause = 30 * time.Second
	// drainLimit is how long connections may use it after this proxy's start; a restart begins it anew. Whoever keeps one open keeps what packets
	// reach through it, such as the node's own ports.
	drainLimit = 24 * time.Hour
)

// removeAll removes the rules of other modes in the families in which those of this proxy are in force, each time there are more
// such families, until ctx ends. So every new connection meets one or the other, and a family that fails keeps the rules that it had.
// Rules that cannot be removed are logged and stay: a packet may meet them before ours.
//
// The proxy that wrote them may still be ending, as in a rolling update that starts the new Pod first, and write once more: so
// they are removed again if they are there after some time. Those that come back later are another proxy's, which Run reports.
//
// What connections pass through is removed when they have ended, or have had drainLimit to end, unless there is more of it than before: then
// all is another proxy's.
func (o *Observer) removeAll(ctx context.Context) {
	var families []cluster.Family
	var pauses []time.Duration // until they are removed again
	var again <-chan time.Time
	used := map[string]backend.Left{} // by mode
	for {
		select {
		case <-ctx.Done():
			return
		case families = <-o.grown:
			o.drainEnd = time.Now().Add(drainLimit)
			used = o.remove(ctx, o.config.Others, nil, families)
			pauses = []time.Duration{5 * time.Second, 10 * time.Second, 30 * time.Second}
		case <-again:
			first := len(pauses) > 0
			modes := slices.DeleteFunc(slices.Clone(o.config.Others), func(m Mode) bool {
				if used[m.Name] != nil || !first {
					return used[m.Name] == nil
				}
				present, err := m.Present(ctx, families...)
				return err != nil || !present
			})
			if first {
				pauses, used = pauses[1:], nil
			}
			used = o.remove(ctx, modes, used, families)
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

// remove removes the rules of modes. It returns what is left because connections use it; last is what was left before.
func (o *Observer) remove(ctx context.Context, modes []Mode, last map[string]backend.Left, families []cluster.Family) map[string]backend.Left {
	logger := klog.FromContext(ctx)
	used := map[string]backend.Left{}
	for _, m := range modes {
		left, err := o.drain(ctx, m, last[m.Name], families)
		rival := errors.Is(err, backend.ErrRival)
		switch {
		case ctx.Err() != nil:
			return used
		case err == nil || rival:
			o.failed.Ended(m.Name)
		case o.failed.Changed(m.Name, err.Error()):
			logger.Error(err, "Cannot remove the rules of another mode; stop this proxy and run kube-proxy --cleanup, or restart the node", "mode", m.Name)
		}
		if len(left) > 0 {
			logger.V(2).Info("Connections pass through what another mode left; it is removed when they have ended", "mode", m.Name, "atTheLatest", o.drainEnd)
			used[m.Name] = left
		}
		o.setAbsent(m, rival || err == nil && len(left) == 0)
	}
	return used
}

// drain removes the rules of the mode, and returns what is left because connections use it.
func (o *Observer) drain(ctx context.Context, m Mode, last backend.Left, families []cluster.Family) (backend.Left, error) {
	if m.Drain == nil || !o.config.Drain {
		return nil, m.Remove(ctx, families...)
	}
	left, err := m.Drain(ctx, last, families...)
	if err != nil || len(left) == 0 || time.Now().Before(o.drainEnd) {
		return left, err // Drain may fail before it looks for another proxy, whose objects must stay
	}
	if err := m.Remove(ctx, families...); err != nil {
		return left, err
	}
	klog.FromContext(ctx).Info("Connections that passed through what another mode left are ended", "mode", m.Name, "after", drainLimit)
	return nil, nil
}
