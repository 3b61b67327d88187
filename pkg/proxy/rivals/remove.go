package rivals

import (
	"context"
	"time"

	"k8s.io/klog/v2"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// removeAll removes the rules of other modes in the families in which those of this proxy are in force, each time there are more
// such families, until ctx ends. So every new connection meets one or the other, and a family that fails keeps the rules that it had.
func (w *Watcher) removeAll(ctx context.Context) {
	for {
		select {
		case families := <-w.grown:
			w.remove(ctx, families)
			w.mu.Lock()
			w.checked, w.families = true, families
			w.mu.Unlock()
		case <-ctx.Done():
			return
		}
	}
}

// remove removes the rules of other modes in these families, or in all if none are given. Rules that cannot be removed are logged and
// stay: a packet may meet them before ours.
//
// The proxy that wrote them may still be ending, as in a rolling update that starts the new Pod first, and write once more: so
// they are removed again if they are there after some time. Those that come back later are another proxy's, which Run reports.
// It returns after that time, or when ctx ends.
func (w *Watcher) remove(ctx context.Context, families []cluster.Family) {
	for _, m := range w.config.Others {
		w.setAbsent(m, m.remove(ctx, families))
	}
	for _, pause := range []time.Duration{5 * time.Second, 10 * time.Second, 30 * time.Second} {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		for _, m := range w.config.Others {
			if present, err := m.Present(ctx, families...); err == nil && present {
				w.setAbsent(m, m.remove(ctx, families))
			}
		}
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
