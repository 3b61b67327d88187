package v1alpha1

import "time"

// PacketTrace is the way of one packet through this node, as the kernel reported it. Printed by "kube-proxy trace -o json"
// (or yaml), an object for each packet; not served.
type PacketTrace struct {
	TypeMeta
	// Time is when the packet was seen.
	Time time.Time `json:"time"`
	// Protocol is TCP, UDP, SCTP, ICMP, ICMPv6 or a number. Source and Destination are the packet's before any translation, with
	// ports if it has them.
	Protocol    string `json:"protocol"`
	Source      string `json:"source"`
	Destination string `json:"destination"`
	// Flags are those of TCP, such as SYN.
	Flags []string `json:"flags,omitempty"`
	// Interface is what the packet arrived on; empty if this node sent it.
	Interface string `json:"interface,omitempty"`
	// Service is namespace/name, Port the name of its port, and Kind that of the address: ClusterIP, LoadBalancerIP, ExternalIP
	// or NodePort. Absent if the destination does not belong to a Service.
	Service string `json:"service,omitempty"`
	Port    string `json:"port,omitempty"`
	Kind    string `json:"kind,omitempty"`
	// TranslatedDestination and TranslatedSource are the packet's addresses at the end of its way, if they differ: the endpoint,
	// and the address that the endpoint sees.
	TranslatedDestination string `json:"translatedDestination,omitempty"`
	TranslatedSource      string `json:"translatedSource,omitempty"`
	// Location is that of the endpoint: ThisNode, OtherNode or Unknown. Absent if the Service has no such endpoint.
	Location string `json:"location,omitempty"`
	// Established reports that an earlier packet of the connection chose the endpoint: only the first one meets nat chains.
	Established bool `json:"established"`
	// Verdict is Sent (to another machine or pod), Delivered (to a process of this node), Rejected, Dropped, Queued (to a program
	// that decides about it), Vanished (between two hooks), Stale (sent to an address that is no
	// endpoint of the Service any more) or Incomplete (some events were lost).
	Verdict string `json:"verdict"`
	// Reason is the verdict in words.
	Reason string `json:"reason"`
	// Chains are the base chains that the packet met, in order.
	Chains []TracedChain `json:"chains"`
}

// TracedChain is what a packet met in a base chain.
type TracedChain struct {
	// Hook and Priority are the chain's; the hook is empty if the chain is gone.
	Hook     string `json:"hook,omitempty"`
	Priority int32  `json:"priority"`
	// Family and Table name its table, such as inet and firewalld.
	Family string `json:"family"`
	Table  string `json:"table"`
	// Steps are the rules that the packet matched, and the ends of chains.
	Steps []TracedStep `json:"steps"`
}

// TracedStep is a rule that a packet matched, or the end of a chain.
type TracedStep struct {
	// Chain is the name of the chain. Rule is the handle of the rule; absent at the end of a chain, where its policy decides.
	Chain string `json:"chain"`
	Rule  uint64 `json:"rule,omitempty"`
	// Verdict is accept, drop, stolen, queue, continue, return, or jump or goto with the chain To. A rule that rejects drops.
	Verdict string `json:"verdict"`
	To      string `json:"to,omitempty"`
	// Comment is the rule's.
	Comment string `json:"comment,omitempty"`
}
