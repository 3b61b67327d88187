package packets

import (
	"maps"
	"slices"
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft/trace"
)

// quiet is the time without an event after which a packet is considered complete. The kernel does not report the end of a
// packet, and a packet passes all hooks within a millisecond, unless it is queued.
const quiet = 200 * time.Millisecond

// assembler sorts events into packets.
type assembler struct {
	// packets are the open ones, in the order of their first events; byID finds them by the kernel's numbers. One packet can
	// have several numbers.
	packets []*packet
	byID    map[uint32]*packet
}

func newAssembler() *assembler { return &assembler{byID: map[uint32]*packet{}} }

// add adds an event that was read at a time. It ignores packets that another program traces.
func (a *assembler) add(e event, now time.Time) {
	p := a.byID[e.Packet]
	if e.Headers != nil && (p == nil || !p.precedes(e)) {
		found := a.earlier(e.Headers)
		if e.begins() && found == nil {
			found = &packet{seen: now, events: []event{e}}
			a.packets = append(a.packets, found)
		}
		if found != nil || p.refused() {
			p = found
		}
		delete(a.byID, e.Packet)
	}
	if p == nil || p.refused() {
		return
	}
	a.byID[e.Packet] = p
	p.last = now
	if _, ends := e.end(); e.Table != trace.Table || ends {
		p.events = append(p.events, e)
	}
}

// begins reports whether an event is the selection of a packet.
func (e *event) begins() bool { return e.Table == trace.Table && e.Chain == trace.Selected }

// end returns the hook that ends with an event.
func (e *event) end() (hook string, ok bool) {
	if e.Table != trace.Table {
		return "", false
	}
	hook, ok = map[string]string{
		trace.AfterPrerouting: "prerouting", trace.AfterOutput: "output", trace.AfterInput: "input", trace.AfterPostrouting: "postrouting",
	}[e.Chain]
	return hook, ok
}

// progress is how far an event is on the way of a packet: a number that grows from hook to hook; 0 if that is unknown.
func (e *event) progress() int {
	hook, ends := e.end()
	if !ends {
		hook = e.Hook
	}
	at := map[string]int{"prerouting": 1, "output": 1, "input": 3, "forward": 3, "postrouting": 5}[hook]
	if ends {
		at++
	}
	return at
}

// precedes reports whether an event with headers can be the packet's next. The kernel reuses numbers, often for two segments of
// one connection.
func (p *packet) precedes(e event) bool {
	if p.refused() || e.begins() {
		return false
	}
	now := e.progress()
	return now == 0 || !slices.ContainsFunc(p.events, func(before event) bool {
		_, ended := before.end()
		return before.progress() > now || ended && before.progress() == now
	})
}

// earlier returns the packet that headers are the continuation of; nil if there is none. The kernel gives a packet another number
// when it changes its interface: from a port of a bridge to the bridge, or by being sent to this machine itself.
func (a *assembler) earlier(h *trace.Headers) *packet {
	for _, p := range slices.Backward(a.packets) {
		if p.continues(h) {
			return p
		}
	}
	return nil
}

// loopback is the name of the interface by which a machine sends to itself.
const loopback = "lo"

// continues reports whether headers can be those of a packet a little later: in hook input, forward or postrouting after
// prerouting, or arriving at this machine that sent it.
func (p *packet) continues(h *trace.Headers) bool {
	now := p.lastHeaders()
	if p.refused() || h.Source != now.Source || h.Destination != now.Destination || h.Protocol != now.Protocol || h.Flags != now.Flags {
		return false
	}
	switch p.lastHook() {
	case "prerouting":
		return h.In == now.In
	case "postrouting":
		return h.In == loopback && now.Out == loopback
	default:
		return false
	}
}

// refused reports whether a rule or policy has dropped the packet.
func (p *packet) refused() bool { return p != nil && p.events[len(p.events)-1].Verdict == "drop" }

// lose notes that events were lost: those of any open packet may be.
func (a *assembler) lose() {
	for _, p := range a.packets {
		p.incomplete = true
	}
}

// finished returns the packets without further events to expect, in the order of their first events.
func (a *assembler) finished(now time.Time) (found []*packet) {
	a.packets = slices.DeleteFunc(a.packets, func(p *packet) bool {
		ended := p.refused() || now.Sub(p.last) >= quiet
		if ended {
			found = append(found, p)
			maps.DeleteFunc(a.byID, func(_ uint32, other *packet) bool { return other == p })
		}
		return ended
	})
	return found
}
