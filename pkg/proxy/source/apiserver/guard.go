package apiserver

import (
	"time"

	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// The limits of the guard.
const (
	// doubtKnown is the minimum number of known endpoints; smaller numbers change often.
	doubtKnown = 100
	// doubtPercent is the percentage of them that a list may remove at once.
	doubtPercent = 90
	doubtTime    = time.Minute
)

// Doubt describes a list that was held back.
type Doubt struct {
	// Resource is what was listed: services or endpointslices.
	Resource string
	// Known is the number of endpoints before the list, Lost how many of them it would have removed.
	Known, Lost int
}

// lost is an object that a list lacks, with its number of endpoints.
type lost struct {
	name      cache.ObjectName
	endpoints int
}

// guard holds back removals by a list if there are too many.
type guard struct {
	off      bool
	resource string
	clock    clock.WithDelayedExecution
	onDoubt  func(Doubt)
	expire   func(*doubt) // called after doubtTime
	logger   klog.Logger

	// known is the number of endpoints before the current list.
	known int
	// doubt is the state of the last list; nil if it was not held back.
	doubt *doubt
}

// doubt is a list that was held back.
type doubt struct {
	held  map[cache.ObjectName]struct{} // objects that the list lacked and that are kept
	timer clock.Timer
}

// judge returns the objects to remove of those that a list lacks: those that the list before also lacked, and the
// others unless they are too many. The objects that it holds back replace those that were held back before.
func (g *guard) judge(missing []lost) (gone []cache.ObjectName) {
	var others []cache.ObjectName
	endpoints := 0
	for _, l := range missing {
		if g.doubts(l.name) {
			gone = append(gone, l.name)
			continue
		}
		others = append(others, l.name)
		endpoints += l.endpoints
	}
	if len(gone) > 0 {
		g.logger.Info("Removing objects that two lists of the API server lacked", "objects", len(gone))
	}
	if g.doubt != nil {
		g.doubt.timer.Stop()
		g.doubt = nil
	}
	if g.off || g.known < doubtKnown || endpoints*100 <= g.known*doubtPercent {
		return append(gone, others...)
	}
	g.hold(others)
	g.logger.Error(nil, "List of the API server lacks almost all known endpoints; keeping them until another list confirms it or the timeout expires",
		"lostEndpoints", endpoints, "knownEndpoints", g.known, "objects", len(others), "timeout", doubtTime, "hint", "check the API server and its etcd")
	if g.onDoubt != nil {
		g.onDoubt(Doubt{Resource: g.resource, Known: g.known, Lost: endpoints})
	}
	return gone
}

func (g *guard) doubts(name cache.ObjectName) bool {
	if g.doubt == nil {
		return false
	}
	_, held := g.doubt.held[name]
	return held
}

func (g *guard) hold(names []cache.ObjectName) {
	d := &doubt{held: make(map[cache.ObjectName]struct{}, len(names))}
	for _, name := range names {
		d.held[name] = struct{}{}
	}
	g.doubt = d
	d.timer = g.clock.AfterFunc(doubtTime, func() { g.expire(d) })
}

// exists removes an object from the doubt after an event about it.
func (g *guard) exists(name cache.ObjectName) {
	if g.doubt != nil {
		delete(g.doubt.held, name)
	}
}

// release returns the objects that a doubt holds back, unless another list has arrived.
func (g *guard) release(d *doubt) (gone []cache.ObjectName) {
	if g.doubt != d {
		return nil
	}
	g.doubt = nil
	for name := range d.held {
		gone = append(gone, name)
	}
	if len(gone) > 0 {
		g.logger.Info("Removing objects that the API server's list lacked; the timeout has expired", "objects", len(gone))
	}
	return gone
}
