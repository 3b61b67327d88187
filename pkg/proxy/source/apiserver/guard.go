package apiserver

import (
	"time"

	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// What makes a list doubtful, and for how long.
const (
	// doubtKnown is how many endpoints must be known; fewer come and go in everyday life.
	doubtKnown = 100
	// doubtPercent of them or less may be lost with a list that is believed.
	doubtPercent = 90
	doubtTime    = time.Minute
)

// Doubt tells of a list that was not believed at once.
type Doubt struct {
	// Resource is what was listed: services or endpointslices.
	Resource string
	// Known endpoints there were before the list, and Lost of them would have been without the guard.
	Known, Lost int
}

// lost is an object that a list lacks, and how many endpoints would go with it.
type lost struct {
	name      cache.ObjectName
	endpoints int
}

// guard holds back removals that a list asks for, if they are too many to be believed.
type guard struct {
	off      bool
	resource string
	clock    clock.WithDelayedExecution
	onDoubt  func(Doubt)
	expire   func(*doubt) // is called when doubtTime has passed
	logger   klog.Logger

	// known is how many endpoints there were before the present list.
	known int
	// doubt is about the last list; nil if that was believed.
	doubt *doubt
}

// doubt is what a list lacked that was not believed.
type doubt struct {
	held  map[cache.ObjectName]struct{} // objects that are still in force
	timer clock.Timer
}

// judge tells which of the objects that a list lacks are gone. What the list before lacked as well is; the
// rest is if it is not too much. What of that is held back takes the place of what was held before.
func (g *guard) judge(missing []lost) (gone []cache.ObjectName) {
	var unheard []cache.ObjectName
	endpoints := 0
	for _, l := range missing {
		if g.doubts(l.name) {
			gone = append(gone, l.name)
			continue
		}
		unheard = append(unheard, l.name)
		endpoints += l.endpoints
	}
	if len(gone) > 0 {
		g.logger.Info("A second list lacks the same objects; they are removed", "objects", len(gone))
	}
	if g.doubt != nil {
		g.doubt.timer.Stop()
		g.doubt = nil
	}
	if g.off || g.known < doubtKnown || endpoints*100 <= g.known*doubtPercent {
		return append(gone, unheard...)
	}
	g.hold(unheard)
	g.logger.Error(nil, "A list of the API server lacks almost all endpoints that are known. They stay in force until another list says the same or the time is over; look after the API server and its etcd",
		"lostEndpoints", endpoints, "knownEndpoints", g.known, "objects", len(unheard), "time", doubtTime)
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

// exists notes that an event spoke of an object: whether it exists is no question any more.
func (g *guard) exists(name cache.ObjectName) {
	if g.doubt != nil {
		delete(g.doubt.held, name)
	}
}

// release gives what is held because of a doubt, unless another list has come meanwhile.
func (g *guard) release(d *doubt) (gone []cache.ObjectName) {
	if g.doubt != d {
		return nil
	}
	g.doubt = nil
	for name := range d.held {
		gone = append(gone, name)
	}
	if len(gone) > 0 {
		g.logger.Info("The objects that the API server's list lacked are removed: the time of doubt is over", "objects", len(gone))
	}
	return gone
}
