package packets

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/status/v1alpha1"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft/trace"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// event is an event with the description of its chain and rule.
type event struct {
	trace.Event
	trace.Description
}

// packet is what was reported of one packet.
type packet struct {
	seen, last time.Time
	events     []event
	// incomplete means that some of its events may be lost.
	incomplete bool
}

// report returns the report on a packet. Its first event has headers.
func (p *packet) report(names *Names, why func(*trace.Headers) string) *v1alpha1.PacketTrace {
	first := p.events[0].Headers
	out := &v1alpha1.PacketTrace{
		TypeMeta: v1alpha1.Meta(v1alpha1.KindPacketTrace), Time: p.seen,
		Protocol: protocolName(first.Protocol), Source: endText(first.Source), Destination: endText(first.Destination),
		Flags: flagNames(first.Flags), Interface: first.In, Chains: p.chains(),
	}
	is := names.of(out.Protocol, first.Destination)
	if is != nil {
		out.Service, out.Port, out.Kind = nameOf(is.service), is.port.Name, is.address.Kind
	}
	now := p.lastHeaders()
	if now.Source != first.Source {
		out.TranslatedSource = endText(now.Source)
	}
	if now.Destination != first.Destination {
		out.TranslatedDestination = endText(now.Destination)
		out.Location = names.locations[[2]string{out.Service, out.TranslatedDestination}]
		out.Established = !slices.ContainsFunc(p.events, func(e event) bool { return e.Type == "nat" })
	}
	p.setVerdict(out, is, why)
	if is != nil && is.hasFastPath() && out.Verdict == v1alpha1.PacketSent && out.Interface != "" {
		out.Reason += "; long connections take the fast path, where packets are not traced"
	}
	if owner := names.clusterIPs[first.Destination.Addr()]; is == nil && owner != "" && first.Destination.Port() != 0 {
		out.Reason += fmt.Sprintf("; %s is the cluster IP of %s, which has no port %d/%s", first.Destination.Addr(), owner, first.Destination.Port(), out.Protocol)
	}
	if out.Established && out.Location == "" && is != nil && is.isWhole() && out.Verdict != v1alpha1.PacketIncomplete {
		out.Verdict = v1alpha1.PacketStale
		out.Reason += fmt.Sprintf("; %s was no endpoint of %s when the trace began: this is a stale connection tracking entry (conntrack -D -p %s --orig-dst %s --reply-src %s)",
			out.TranslatedDestination, out.Service, strings.ToLower(out.Protocol), first.Destination.Addr(), now.Destination.Addr())
	}
	return out
}

// lastHeaders returns the headers that were reported last.
func (p *packet) lastHeaders() *trace.Headers {
	for _, e := range slices.Backward(p.events) {
		if e.Headers != nil {
			return e.Headers
		}
	}
	return p.events[0].Headers
}

// setVerdict sets the verdict and its reason. The destination may have no name.
func (p *packet) setVerdict(out *v1alpha1.PacketTrace, is *name, why func(*trace.Headers) string) {
	last := p.events[len(p.events)-1]
	switch last.Verdict {
	case "drop":
		out.Verdict, out.Reason = v1alpha1.PacketDropped, "dropped"
		if last.Rejects {
			out.Verdict, out.Reason = v1alpha1.PacketRejected, "rejected"
		}
		out.Reason += " " + ruleText(last)
		switch {
		case !ours(last.Event) || is == nil:
		case is.address.Verdict != v1alpha1.VerdictBalance:
			out.Reason += ": " + is.address.Reason
		case is.excludes(p.events[0].Headers.Source.Addr()):
			out.Reason += ": the source is in none of the Service's source ranges (" + strings.Join(is.service.SourceRanges, ", ") + ")"
		case is.service.ConnectionLimits != "":
			out.Reason += ": connections exceed the Service's limits on this node (" + is.service.ConnectionLimits + ")"
		}
	case "queue", "stolen":
		out.Verdict, out.Reason = v1alpha1.PacketQueued, "handed over "+ruleText(last)+": a program, or another part of the kernel, decides about it"
	default:
		p.setArrival(out, why)
	}
	if p.incomplete && last.Verdict != "drop" {
		out.Verdict, out.Reason = v1alpha1.PacketIncomplete, "the kernel reported more events than could be received, and some of this packet may be missing"
	}
}

// setArrival sets the verdict of a packet that no rule refused: it follows from the last hook in which it was seen.
func (p *packet) setArrival(out *v1alpha1.PacketTrace, why func(*trace.Headers) string) {
	at := p.lastHook()
	now := p.lastHeaders()
	to := cmp.Or(out.TranslatedDestination, out.Destination)
	switch at {
	case "input":
		out.Verdict, out.Reason = v1alpha1.PacketDelivered, "delivered to this node, at "+to
	case "postrouting":
		out.Verdict, out.Reason = v1alpha1.PacketSent, "sent to "+to
		if now.Out != "" {
			out.Reason += " by " + now.Out
		}
	case "forward":
		out.Verdict, out.Reason = v1alpha1.PacketVanished, fmt.Sprintf("not seen after hook forward: no rule dropped it, so the kernel did on its way to %s", to)
	default:
		out.Verdict = v1alpha1.PacketVanished
		out.Reason = fmt.Sprintf("not seen after hook %s: no rule dropped it, the kernel did: ", at)
		cause := ""
		if why != nil {
			cause = why(now)
		}
		out.Reason += cmp.Or(cause, "its routes and settings do not say why, counters may (nstat -az, ip -s link)")
		if now.Destination.Addr() == p.events[0].Headers.Source.Addr() {
			out.Reason += "; the endpoint is the source itself"
		}
	}
	if out.Service != "" && out.TranslatedDestination == "" && out.Verdict != v1alpha1.PacketVanished {
		out.Reason += "; its destination was not translated"
	}
}

// lastHook is the hook in which the packet was seen last. Those in which packets are selected have no events of their own.
func (p *packet) lastHook() string {
	hook := "output"
	if p.events[0].Headers.In != "" {
		hook = "prerouting"
	}
	for _, e := range p.events {
		if ended, ok := e.end(); ok {
			hook = ended
		} else if e.progress() > 0 {
			hook = e.Hook
		}
	}
	return hook
}

// chains are the base chains that a packet met, without those of the trace.
func (p *packet) chains() []v1alpha1.TracedChain {
	all := []v1alpha1.TracedChain{}
	for _, e := range p.events {
		if e.Table == trace.Table {
			continue
		}
		if last := len(all) - 1; e.Headers != nil || last < 0 || all[last].Table != e.Table || all[last].Family != e.Family {
			all = append(all, v1alpha1.TracedChain{Hook: e.Hook, Priority: e.Priority, Family: e.Family, Table: e.Table})
		}
		in := &all[len(all)-1]
		in.Steps = append(in.Steps, v1alpha1.TracedStep{Chain: e.Chain, Rule: e.Handle, Verdict: e.Verdict, To: e.To, Comment: e.Comment})
	}
	return all
}

// ruleText names the rule or policy of an event.
func ruleText(e event) string {
	text := fmt.Sprintf("by table %s %s, chain %s", e.Family, e.Table, e.Chain)
	switch {
	case e.Kind == trace.Policy:
		text += " (its policy)"
	case e.Comment != "":
		text += fmt.Sprintf(" (%s)", e.Comment)
	}
	if !ours(e.Event) {
		text += ", which is not kube-proxy's"
	}
	return text
}

// ours reports whether a chain is of a kube-proxy: the names of its table in nftables mode, and of its chains in iptables mode,
// are public.
func ours(e trace.Event) bool { return isOurs(e.Family, e.Table, e.Chain) }

func isOurs(family, table, chain string) bool {
	return (family == "ip" || family == "ip6") && (table == "kube-proxy" || strings.HasPrefix(chain, "KUBE-"))
}

// protocolName returns the name of an IPPROTO_*.
func protocolName(number byte) string {
	switch p := cluster.Protocol(number); {
	case p == cluster.TCP, p == cluster.UDP, p == cluster.SCTP:
		return p.String()
	case number == 1:
		return "ICMP"
	case number == 58:
		return "ICMPv6"
	default:
		return fmt.Sprintf("protocol %d", number)
	}
}

// endText is an address, with its port if it has one.
func endText(at netip.AddrPort) string {
	if at.Port() == 0 {
		return at.Addr().String()
	}
	return at.String()
}

// flagNames are the names of the flags of TCP.
func flagNames(flags byte) (names []string) {
	for i, name := range []string{"FIN", "SYN", "RST", "PSH", "ACK", "URG"} {
		if flags&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return names
}
