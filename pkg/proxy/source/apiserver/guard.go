package apiserver

import (
	"time"

	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// The limits of the guard.
const (
	// minKnown is the minimum number of known endpoints; smaller numbers change often.
	minKnown = 100
	// maxLostPercent is the percentage of them that a list may remove at once.
	maxLostPercent = 90
	// holdTime is how long a removal is held back.
	holdTime = time.Minute
)

// lost is an object that a list lacks, with its number of endpoints.
type lost struct {
	name      cache.ObjectName
	endpoints int
}

// guard holds back removals by a list if there are too many.
type guard struct {
	off    bool
	clock  clock.WithDelayedExecution
	onHeld func()
	expire func(*removals) // called after holdTime
	logger klog.Logger

	// known is the number of endpoints before the current list.
	known int
	// held are the removals of the last list; nil if they were not held back.
	held *removals
}

// removals are objects that a list lacked and that are kept until another list lacks them too, or holdTime ends.
type removals struct {
	names map[cache.ObjectName]struct{}
	timer clock.Timer
}

// filter returns the objects to remove of those that a list lacks: those that the list before also lacked, and the
// others unless they are too many. The objects that it holds back replace those that were held back before.
func (g *guard) filter(missing []lost) (gone []cache.ObjectName) {
	var others []cache.ObjectName
	endpoints := 0
	for _, l := range missing {
		if g.holds(l.name) {
			gone = append(gone, l.name)
			continue
		}
		others = append(others, l.name)
		endpoints += l.endpoints
	}
	if len(gone) > 0 {
		g.logger.Info("Removing objects that two lists of the API server lacked", "objects", len(gone))
	}
	if g.held != nil {
		g.held.timer.Stop()
		g.held = nil
	}
	if g.off || g.known < minKnown || endpoints*100 <= g.known*maxLostPercent {
		return append(gone, others...)
	}
	g.hold(others)
	g.logger.Error(nil, "List of the API server lacks almost all known endpoints; keeping them until another list confirms it or the timeout expires",
		"lostEndpoints", endpoints, "knownEndpoints", g.known, "objects", len(others), "timeout", holdTime, "hint", "check the API server and its etcd")
	if g.onHeld != nil {
		g.onHeld()
	}
	return gone
}

// holds reports whether the removal of an object is held back.
func (g *guard) holds(name cache.ObjectName) bool {
	if g.held == nil {
		return false
	}
	_, held := g.held.names[name]
	return held
}

func (g *guard) hold(names []cache.ObjectName) {
	r := &removals{names: make(map[cache.ObjectName]struct{}, len(names))}
	for _, name := range names {
		r.names[name] = struct{}{}
	}
	g.held = r
	r.timer = g.clock.AfterFunc(holdTime, func() { g.expire(r) })
}

// exists cancels the removal of an object after an event about it.
func (g *guard) exists(name cache.ObjectName) {
	if g.held != nil {
		delete(g.held.names, name)
	}
}

// release returns the objects whose removal was held back, unless another list has arrived.
func (g *guard) release(r *removals) (gone []cache.ObjectName) {
	if g.held != r {
		return nil
	}
	g.held = nil
	for name := range r.names {
		gone = append(gone, name)
	}
	if len(gone) > 0 {
		g.logger.Info("Removing objects that the API server's list lacked; the timeout has expired", "objects", len(gone))
	}
	return gone
}
