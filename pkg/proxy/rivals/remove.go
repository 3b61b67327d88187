package rivals

import (
	"context"
	"time"

	"k8s.io/klog/v2"
)

// Remove removes the rules of other modes. It is called once, when those of this proxy are in force, so that every new connection
// meets one or the other. Rules that cannot be removed are logged and stay; they only cost each packet some time.
//
// The proxy that wrote them may still be ending, as in a rolling update that starts the new Pod first, and write once more: so
// they are removed again if they are there after some time. Those that come back later are another proxy's, which Run reports.
// Remove returns after that time, or when ctx ends.
func (w *Watcher) Remove(ctx context.Context) {
	defer close(w.removed)
	for _, m := range w.config.Others {
		w.absent[m.Name] = m.remove(ctx)
	}
	for _, pause := range []time.Duration{5 * time.Second, 10 * time.Second, 30 * time.Second} {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		for _, m := range w.config.Others {
			if present, err := m.Present(ctx); err == nil && present {
				w.absent[m.Name] = m.remove(ctx)
			}
		}
	}
}

// remove reports whether it has removed everything.
func (m Mode) remove(ctx context.Context) bool {
	err := m.Remove(ctx)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Cannot remove the rules of another mode; stop this proxy and run kube-proxy --cleanup, or restart the node", "mode", m.Name)
	}
	return err == nil
}
