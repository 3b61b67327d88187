package takeover

import (
	"context"
	"time"

	"k8s.io/klog/v2"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// removeAll removes the rules of other modes in the families in which those of this proxy are in force, each time there are more
// such families, until ctx ends. So every new connection meets one or the other, and a family that fails keeps the rules that it had.
// Rules that cannot be removed are logged and stay: a packet may meet them before ours.
//
// The proxy that wrote them may still be ending, as in a rolling update that starts the new Pod first, and write once more: so
// they are removed again if they are there after some time. Those that come back later are another proxy's, which Run reports.
func (o *Observer) removeAll(ctx context.Context) {
	var families []cluster.Family
	var pauses []time.Duration // until they are removed again
	var again <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case families = <-o.grown:
			for _, m := range o.config.Others {
				o.setAbsent(m, m.remove(ctx, families))
			}
			pauses = []time.Duration{5 * time.Second, 10 * time.Second, 30 * time.Second}
		case <-again:
			for _, m := range o.config.Others {
				if present, err := m.Present(ctx, families...); err == nil && present {
					o.setAbsent(m, m.remove(ctx, families))
				}
			}
			pauses = pauses[1:]
		}
		if len(pauses) > 0 {
			again = time.After(pauses[0])
			continue
		}
		o.mu.Lock()
		o.checked, o.families = true, families
		o.mu.Unlock()
	}
}

// remove reports whether it has removed everything.
func (m Mode) remove(ctx context.Context, families []cluster.Family) bool {
	err := m.Remove(ctx, families...)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Cannot remove the rules of another mode; stop this proxy and run kube-proxy --cleanup, or restart the node", "mode", m.Name)
	}
	return err == nil
}
