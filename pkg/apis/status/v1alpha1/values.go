package v1alpha1

// The values of Address.Verdict and Explanation.Verdict.
const (
	VerdictBalance   = "Balance"
	VerdictReject    = "Reject"
	VerdictDrop      = "Drop"
	VerdictPass      = "Pass"
	VerdictNotServed = "NotServed"
)

// The values of PacketTrace.Verdict.
const (
	PacketSent       = "Sent"
	PacketDelivered  = "Delivered"
	PacketRejected   = "Rejected"
	PacketDropped    = "Dropped"
	PacketQueued     = "Queued"
	PacketVanished   = "Vanished"
	PacketStale      = "Stale"
	PacketIncomplete = "Incomplete"
)

// The values of OpenEndpoint.State, the phases of an endpoint's life.
const (
	EndpointReady              = "Ready"
	EndpointNotReady           = "NotReady"
	EndpointTerminatingServing = "TerminatingServing"
	EndpointTerminating        = "Terminating"
	EndpointGone               = "Gone"
)

// The reasons of Info.Problems about files, about an IP family that cannot be served, and about what the canary finds.
const (
	ReasonDataplane            = "DataplaneBroken"
	ReasonFamilyNotServed      = "FamilyNotServed"
	ReasonInvalidConfiguration = "InvalidConfiguration"
	ReasonInvalidManifest      = "InvalidManifest"
)

// The values of Endpoint.Location and PacketTrace.Location.
const (
	LocationThisNode  = "ThisNode"
	LocationOtherNode = "OtherNode"
	LocationUnknown   = "Unknown"
)
