package findings

import "slices"

// Code is a kind of finding: what is wrong with a Service has the reasons of plan.ProblemReasons as codes.
type Code string

// The other codes; [Definitions] describes each.
const (
	ExternalIPs          Code = "ExternalIPs"
	ExternalIPCapture    Code = "ExternalIPCapture"
	LoadBalancerIP       Code = "LoadBalancerIPNotAcknowledged"
	NodePorts            Code = "NodePortsDifferByMode"
	NodeKubeProxyVersion Code = "NodeKubeProxyVersion"
	Configuration        Code = "DeprecatedConfiguration"
	LostSetting          Code = "SettingWithoutEffect"
	NodeKernel           Code = "NodeKernelTooOld"

	OnlyTerminating     Code = "OnlyTerminatingEndpoints"
	SliceWithoutService Code = "SliceWithoutService"
	EndpointAddress     Code = "EndpointAddressForbidden"
	EndpointOnService   Code = "EndpointOnServiceAddress"
	EndpointOfOther     Code = "EndpointOfOtherNamespace"
	EndpointNode        Code = "EndpointNodeMissing"

	ClusterIPShared     Code = "ClusterIPShared"
	OutsideServiceCIDRs Code = "ClusterIPOutsideServiceCIDRs"
	InsideServiceCIDRs  Code = "AddressInsideServiceCIDRs"
	AddressForbidden    Code = "AddressForbidden"
	SourceRanges        Code = "SourceRangesOneFamily"
	NodePortRange       Code = "NodePortOutsideRange"
	HealthCheckShared   Code = "HealthCheckPortShared"
	HealthCheckMissing  Code = "HealthCheckPortMissing"
	InvalidField        Code = "InvalidField"
	RefusedManifest     Code = "RefusedManifest"

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
