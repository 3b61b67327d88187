package v1alpha1

import "time"

// PacketTrace is the way of one packet through this node, as the kernel reported it. Not served: "kube-proxy trace -o json"
// prints one for each packet.
type PacketTrace struct {
	TypeMeta
	// Time is when the packet was seen.
	Time time.Time `json:"time"`
	// Protocol is TCP, UDP, SCTP, ICMP, ICMPv6 or a number.
	Protocol string `json:"protocol"`
	// Source and Destination are those before any translation, with ports if it has them.
	Source      string `json:"source"`
	Destination string `json:"destination"`
	// Flags are those of TCP, such as SYN.
	Flags []string `json:"flags,omitempty"`
	// Interface is where the packet arrived; absent if this node sent it.
	Interface string `json:"interface,omitempty"`
	// Service, Port and Kind are namespace/name, the name of the port, and ClusterIP, LoadBalancerIP, ExternalIP or NodePort;
	// absent if the destination is no Service's.
	Service string `json:"service,omitempty"`
	Port    string `json:"port,omitempty"`
	Kind    string `json:"kind,omitempty"`
	// TranslatedDestination and TranslatedSource are the endpoint, and the source that it sees, if they differ from above.
	TranslatedDestination string `json:"translatedDestination,omitempty"`
	TranslatedSource      string `json:"translatedSource,omitempty"`
	// Location is the endpoint's: ThisNode, OtherNode or Unknown; absent if the Service has no such endpoint.
	Location string `json:"location,omitempty"`
	// Established is whether an earlier packet of the connection chose the endpoint: only the first one meets nat chains.
	Established bool `json:"established"`
	// Verdict is Sent (to another machine or pod), Delivered (to a process of this node), Rejected, Dropped, Queued (to a
	// program that decides), Vanished (between two hooks), Stale (sent to an address that is no longer an endpoint), or
	// Incomplete (events were lost).
	Verdict string `json:"verdict"`
	// Reason is the verdict in words.
	Reason string `json:"reason"`
	// Chains are the base chains that the packet met, in order.
	Chains []TracedChain `json:"chains"`
}

// TracedChain is what a packet met in a base chain.
type TracedChain struct {
	// Hook and Priority are the chain's; without a hook it is gone.
	Hook     string `json:"hook,omitempty"`
	Priority int32  `json:"priority"`
	// Family and Table are those of the chain, such as inet and firewalld.
	Family string `json:"family"`
	Table  string `json:"table"`
	// Steps are the rules that the packet matched, and the ends of chains.
	Steps []TracedStep `json:"steps"`
}

// TracedStep is a rule that a packet matched, or the end of a chain.
type TracedStep struct {
	Chain string `json:"chain"`
	// Rule is its handle; absent at the end of a chain, where the policy decides.
	Rule uint64 `json:"rule,omitempty"`
	// Verdict is accept, drop (also of a rule that rejects), stolen, queue, continue, return, jump or goto.
	Verdict string `json:"verdict"`
	// To is the chain of jump or goto.
	To string `json:"to,omitempty"`
	// Comment is the rule's.
	Comment string `json:"comment,omitempty"`
}

// Trial is the result of connections that were sent from this node to the destination of an Explanation.
type Trial struct {
	// Succeeds is whether they did what was explained, and no endpoint had to be asked itself.
	Succeeds bool `json:"succeeds"`
	// Connected, Refused and TimedOut are the numbers of connections by their results.
	Connected int `json:"connected"`
	Refused   int `json:"refused"`
	TimedOut  int `json:"timedOut"`
	// Denied and Failed are the numbers of those that rules of this node refused at once, and that could not be sent.
	Denied int `json:"denied"`
	Failed int `json:"failed"`
	// Error is why the first one could not be sent.
	Error string `json:"error,omitempty"`
	// Endpoints are those with a result.
	Endpoints []TriedEndpoint `json:"endpoints,omitempty"`
	// Conclusion is what the results mean.
	Conclusion string `json:"conclusion"`
}

// TriedEndpoint is the result of one endpoint in a Trial.
type TriedEndpoint struct {
	// Address is IP:port.
	Address string `json:"address"`
	// Connections is the number of connections that the kernel's rules sent to it meanwhile, also of other clients. Absent if they are
	// not counted.
	Connections *uint64 `json:"connections,omitempty"`
	// Result is that of a connection to the endpoint itself, without the Service: answered, refused, no answer, denied at send, or an
	// error. Absent unless TCP connections to the Service failed; at most 100 endpoints are asked.
	Result string `json:"result,omitempty"`
}
