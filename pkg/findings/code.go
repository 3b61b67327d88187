package findings

import (
	"fmt"
	"slices"
	"strings"
)

// Code is a kind of finding. Codes never change, so that scripts can rely on them.
type Code string

// The codes; [Definitions] describes each.
const (
	ExternalIPs          Code = "ExternalIPs"
	ExternalIPCapture    Code = "ExternalIPCapture"
	LoadBalancerIP       Code = "LoadBalancerIPNotAcknowledged"
	NodePorts            Code = "NodePortsDifferByMode"
	NodeKubeProxyVersion Code = "NodeKubeProxyVersion"
	Configuration        Code = "DeprecatedConfiguration"

	PortNameMismatch       Code = "PortNameMismatch"
	PortNotInSlices        Code = "PortNotInSlices"
	LocalWithoutEndpoints  Code = "LocalPolicyWithoutEndpoints"
	EndpointsNotReady      Code = "EndpointsNotReady"
	OnlyTerminating        Code = "OnlyTerminatingEndpoints"
	FamilyWithoutEndpoints Code = "FamilyWithoutEndpoints"
	NoSlices               Code = "ServiceWithoutSlices"
	NoSelectorNoSlices     Code = "SelectorlessWithoutSlices"
	NoEndpoints            Code = "NoEndpoints"
	SliceWithoutService    Code = "SliceWithoutService"
	EndpointAddress        Code = "EndpointAddressForbidden"
	EndpointOnService      Code = "EndpointOnServiceAddress"
	EndpointOfOther        Code = "EndpointOfOtherNamespace"
	EndpointNode           Code = "EndpointNodeMissing"

	Contested           Code = "ContestedAddress"
	ClusterIPShared     Code = "ClusterIPShared"
	OutsideServiceCIDRs Code = "ClusterIPOutsideServiceCIDRs"
	InsideServiceCIDRs  Code = "AddressInsideServiceCIDRs"
	AddressForbidden    Code = "AddressForbidden"
	ExternalIPsWithheld Code = "ExternalIPsNotServed"
	FamilyNotServed     Code = "AddressFamilyNotServed"
	SourceRanges        Code = "SourceRangesOneFamily"
	NodePortRange       Code = "NodePortOutsideRange"
	HealthCheckShared   Code = "HealthCheckPortShared"
	HealthCheckMissing  Code = "HealthCheckPortMissing"
	InvalidField        Code = "InvalidField"

	NodeWithoutAddress Code = "NodeWithoutAddress"
	NodeWithoutPodCIDR Code = "NodeWithoutPodCIDR"
)

// Severity orders findings.
type Severity string

// The severities. Error: wanted traffic is lost, or reaches the wrong place. Warning: it may be, or
// will be. Info: it is probably intended.
const (
	Error   Severity = "error"
	Warning Severity = "warning"
	Info    Severity = "info"
)

// Severities returns all severities, the worst first.
func Severities() []Severity { return []Severity{Error, Warning, Info} }

// AtLeast reports whether s is as bad as o, or worse.
func (s Severity) AtLeast(o Severity) bool {
	return slices.Index(Severities(), s) <= slices.Index(Severities(), o)
}

// Group is a set of codes that answer one question.
type Group string

// The groups. A code may belong to several.
const (
	// Upgrade is what a change to this proxy, to another mode or to another version changes.
	Upgrade Group = "upgrade"
	// Endpoints is where connections to a Service go.
	Endpoints Group = "endpoints"
	// Addresses is whether the addresses and ports of Services are served, and to whom.
	Addresses Group = "addresses"
	// Nodes is what the proxy needs to know of Nodes.
	Nodes Group = "nodes"
)

// Groups returns all groups, in the order of the documentation.
func Groups() []Group { return []Group{Endpoints, Addresses, Nodes, Upgrade} }

// Definition describes a code.
type Definition struct {
	Code     Code
	Severity Severity
	Groups   []Group
	// Finds says what is found, Remedy what to do about it.
	Finds, Remedy string
}

// Definitions returns all codes, in the order of a report. docs/findings.md is generated from it.
func Definitions() []Definition {
	return slices.Concat(upgradeDefinitions(), endpointDefinitions(), addressDefinitions(), nodeDefinitions())
}

// Define returns the definition of a code, and false if there is no such code.
func Define(code Code) (Definition, bool) {
	all := Definitions()
	at := slices.IndexFunc(all, func(d Definition) bool { return d.Code == code })
	if at < 0 {
		return Definition{}, false
	}
	return all[at], true
}

// Codes returns the codes that belong to one of the groups, in the order of a report; those of all groups if there is none.
func Codes(groups ...Group) []Code {
	var codes []Code
	for _, d := range Definitions() {
		if len(groups) == 0 || slices.ContainsFunc(d.Groups, func(g Group) bool { return slices.Contains(groups, g) }) {
			codes = append(codes, d.Code)
		}
	}
	return codes
}

// Markdown returns the table of codes as documentation.
func Markdown() string {
	var b strings.Builder
	b.WriteString(docsHead)
	for _, group := range Groups() {
		fmt.Fprintf(&b, "\n## Group %s\n\n%s\n\n| code | severity | what is found | what to do |\n|---|---|---|---|\n", group, group.about())
		for _, d := range Definitions() {
			if slices.Contains(d.Groups, group) {
				fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", d.Code, d.Severity, d.Finds, d.Remedy)
			}
		}
	}
	return b.String()
}

const docsHead = `# Findings

<!-- Generated from pkg/findings by "make docs"; do not edit. -->

` + "`kube-proxy analyze`" + ` reads the Services, EndpointSlices, Nodes and ServiceCIDRs of a cluster, or of manifests, and reports what does not
work or may not be intended. ` + "`kube-proxy audit`" + ` is its group upgrade. Each finding has a code. Codes never change; leave one out
with ` + "`--skip CODE`" + `.

Severities: **error**: wanted traffic is lost, or reaches the wrong place. **warning**: it may be, or will be.
**info**: it is probably intended. ` + "`kube-proxy analyze`" + ` exits with 1 if there is a finding of at least the severity of
` + "`--fail-on`" + ` (default warning), and with 2 if not everything could be read.

Which endpoints get connections, and which Service gets an address that several claim, is decided by the code of the proxy itself,
from the point of view of a node that every endpoint with a node name is local to.
`

func (g Group) about() string {
	switch g {
	case Upgrade:
		return "What a change to this proxy, to another mode or to another version changes. `kube-proxy audit` reports these."
	case Endpoints:
		return "Where connections to a Service go, and why they may go nowhere."
	case Addresses:
		return "Whether the addresses and ports of Services are served, and to whom."
	default:
		return "What the proxy needs to know of Nodes."
	}
}
