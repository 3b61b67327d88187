package v1alpha1

import "time"

// APIVersion is the value of apiVersion in every object of this package.
const APIVersion = "serviceproxy/v1alpha1"

// Path is the path below which the metrics address serves the objects.
const Path = "/api/v1alpha1"

// The kinds of objects.
const (
	KindIndex       = "Index"
	KindInfo        = "Info"
	KindServiceList = "ServiceList"
	KindService     = "Service"
	KindExplanation = "Explanation"
	KindPacketTrace = "PacketTrace"
	KindRepairList  = "RepairList"
	KindHistory     = "History"
	KindRuleset     = "Ruleset"
	KindComparison  = "Comparison"
	KindDigests     = "Digests"
	KindStatus      = "Status"

	KindOpenConnections = "OpenConnections"

	// Those that only commands print are beside what they report on.
	KindAnalysis         = "Analysis"
	KindConfigValidation = "ConfigValidation"
	KindFeatureGateList  = "FeatureGateList"
	KindFleet            = "Fleet"
	KindFleetWait        = "FleetWait"
	KindNodeCheck        = "NodeCheck"
)

// TypeMeta identifies an object.
type TypeMeta struct {
	Kind       string `json:"kind"`
	APIVersion string `json:"apiVersion"`
}

// Meta returns the TypeMeta of a kind.
func Meta(kind string) TypeMeta { return TypeMeta{Kind: kind, APIVersion: APIVersion} }

// Status is an error.
type Status struct {
	TypeMeta
	// Code is the HTTP status code.
	Code int `json:"code"`
	// Message is the error, and what to do.
	Message string `json:"message"`
}

// Index lists the paths of the API. Served at /.
type Index struct {
	TypeMeta
	// Paths are those that the metrics address serves.
	Paths []string `json:"paths"`
}

// Info describes the proxy. Served at /info.
type Info struct {
	TypeMeta
	Version string `json:"version"`
	// Mode is iptables or nftables; absent if no proxy runs, and the objects were read from files or a cluster.
	Mode string `json:"mode,omitempty"`
	Node string `json:"node"`
	// NodeAddresses are its addresses, the primary one first.
	NodeAddresses []string `json:"nodeAddresses"`
	// NodePortAddresses are the addresses of this machine that serve node ports.
	NodePortAddresses []string `json:"nodePortAddresses"`
	// Zone is its topology zone.
	Zone string `json:"zone,omitempty"`
	// Families are the IP families that are served.
	Families []string   `json:"families,omitempty"`
	Started  *time.Time `json:"started,omitempty"`
	// Synced is when a sync last succeeded in all families.
	Synced *time.Time `json:"synced,omitempty"`
	// Pending is when the oldest change arrived that no sync has begun to program.
	Pending *time.Time `json:"pending,omitempty"`
	// Waiting is what the proxy waits for, such as the API server to list services.
	Waiting []string `json:"waiting,omitempty"`
	// Observed is the number of Services with each problem that only the running proxy sees: RefusedByKernel, ChangeDelayed,
	// HealthCheckNotServed.
	Observed map[string]int `json:"observed,omitempty"`
	// Problems are what is wrong with the proxy's files and settings, and the node: InvalidConfiguration, InvalidManifest, NoEndpointInClusterCIDR,
	// FamilyNotServed, DataplaneBroken.
	Problems []Problem `json:"problems,omitempty"`
	// Sync is the last sync, which may have failed.
	Sync *Sync `json:"sync,omitempty"`
	// ConnectionsCounted is what the kernel counts: connections to each endpoint and address (endpoint), to each address
	// (service), or none.
	ConnectionsCounted string `json:"connectionsCounted,omitempty"`
	// Services, Frontends and Contested are the numbers of Services, of their addresses with protocol and port, and of those
	// that several Services claim.
	Services  int `json:"services"`
	Frontends int `json:"frontends"`
	Contested int `json:"contested"`
}

// Sync is the result of writing the rules once.
type Sync struct {
	Started  time.Time    `json:"started"`
	Seconds  float64      `json:"seconds"`
	Families []FamilySync `json:"families"`
}

// Failed returns the families in which it failed; none if there was no sync.
func (s *Sync) Failed() (failed []FamilySync) {
	if s == nil {
		return nil
	}
	for _, family := range s.Families {
		if family.Error != "" {
			failed = append(failed, family)
		}
	}
	return failed
}

// FamilySync is the result of a sync in one IP family.
type FamilySync struct {
	// Family is IPv4 or IPv6.
	Family  string  `json:"family"`
	Seconds float64 `json:"seconds"`
	// Elements and Rules are how many set elements and rules were written.
	Elements int `json:"elements"`
	Rules    int `json:"rules"`
	// Error is why it failed, which leaves the earlier rules in force.
	Error string `json:"error,omitempty"`
}

// Failure says in words that it failed.
func (f *FamilySync) Failure() string { return f.Family + ": the last sync failed: " + f.Error }

// Digests is what the node knows of Services, in short: nodes with the same digest know the same of them. What nodes see differently by
// design, such as which endpoints are local, is left out. Served at /digests, with the parameter services=true.
type Digests struct {
	TypeMeta
	// All is the digest of all Services.
	All string `json:"all"`
	// Services are those of each Service, by NAMESPACE/NAME; absent without services=true.
	Services map[string]string `json:"services,omitempty"`
}

// ServiceList lists Services by namespace and name. Served at /services, with the parameters namespace, address (of the
// Service, an endpoint, or its node ports), and connections=true (to read counters).
type ServiceList struct {
	TypeMeta
	// Time is when the list was made, or its counters were read.
	Time  time.Time `json:"time"`
	Items []Service `json:"items"`
	// Unowned are the EndpointSlices whose Service is not served; absent with the parameter address.
	Unowned []Slice `json:"unowned,omitempty"`
	// ConnectionsError is why the counters could not be read.
	ConnectionsError string `json:"connectionsError,omitempty"`
}

// Service is one Service as this node serves it. Served at /services/NAMESPACE/NAME, with the parameter connections=true.
type Service struct {
	TypeMeta
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Time is absent in a list.
	Time *time.Time `json:"time,omitempty"`
	// ClusterIPs, LoadBalancerIPs and ExternalIPs are its addresses, served or not.
	ClusterIPs      []string `json:"clusterIPs"`
	LoadBalancerIPs []string `json:"loadBalancerIPs,omitempty"`
	ExternalIPs     []string `json:"externalIPs,omitempty"`
	// InternalTrafficPolicy and ExternalTrafficPolicy are Cluster or Local.
	InternalTrafficPolicy string `json:"internalTrafficPolicy"`
	ExternalTrafficPolicy string `json:"externalTrafficPolicy"`
	// SessionAffinitySeconds is how long a client keeps its endpoint; absent without session affinity.
	SessionAffinitySeconds int `json:"sessionAffinitySeconds,omitempty"`
	// Balancing is how connections get one of several endpoints, in words; absent if at random with equal probability.
	Balancing string `json:"balancing,omitempty"`
	// ConnectionLimits are the bounds of its connections on this node, in each family, in words; absent without any.
	ConnectionLimits string `json:"connectionLimits,omitempty"`
	// PreservesUDPFlows is whether UDP flows stay with an endpoint until it has terminated.
	PreservesUDPFlows bool `json:"preservesUDPFlows,omitempty"`
	// FastPath is whether long connections take the fast path.
	FastPath bool `json:"fastPath,omitempty"`
	// SourceRanges are the only sources that may use the load balancer IPs; absent if all may.
	SourceRanges []string `json:"sourceRanges,omitempty"`
	// NodePortAddresses are the addresses of this machine on which its node ports are served; absent in a list.
	NodePortAddresses []string       `json:"nodePortAddresses,omitempty"`
	Endpoints         EndpointCounts `json:"endpoints"`
	Ports             []Port         `json:"ports"`
	// EndpointsNotListed is how many endpoints the ports do not list: together they list at most 20,000.
	EndpointsNotListed int `json:"endpointsNotListed,omitempty"`
	// Slices are its EndpointSlices; absent in a list.
	Slices []Slice `json:"slices,omitempty"`
	// HealthCheck is the answer to the health checks of load balancers.
	HealthCheck *HealthCheck `json:"healthCheck,omitempty"`
	// Connections, Refused and Limited are the sums of those of its addresses.
	Connections      *uint64 `json:"connections,omitempty"`
	Refused          *uint64 `json:"refused,omitempty"`
	Limited          *uint64 `json:"limited,omitempty"`
	ConnectionsError string  `json:"connectionsError,omitempty"`
	// Changed is the last change of the Service or its endpoints since the first sync.
	Changed *Change `json:"changed,omitempty"`
	// Problems are why connections to some of its addresses fail on this node.
	Problems []Problem `json:"problems,omitempty"`
}

// EndpointCounts counts a Service's distinct endpoint addresses.
type EndpointCounts struct {
	// Ready, Local and All are the numbers of ready ones, of ready ones on this node, and of all in its EndpointSlices.
	Ready int `json:"ready"`
	Local int `json:"local"`
	All   int `json:"all"`
}

// Port is a port of a Service.
type Port struct {
	Name string `json:"name,omitempty"`
	// Protocol is TCP, UDP or SCTP.
	Protocol string `json:"protocol"`
	// Port and NodePort are the ports on the Service's addresses and on the node's.
	Port     uint16 `json:"port"`
	NodePort uint16 `json:"nodePort,omitempty"`
	// Addresses are where the port is served.
	Addresses []Address `json:"addresses"`
	// Endpoints are those of all of the Service's EndpointSlices, used or not; absent in a list.
	Endpoints []Endpoint `json:"endpoints,omitempty"`
}

// Address is how connections to one address of a port are handled.
type Address struct {
	// Address is an IP address; 0.0.0.0 or :: for a NodePort, which means those of NodePortAddresses.
	Address string `json:"address"`
	// Kind is ClusterIP, LoadBalancerIP, ExternalIP or NodePort.
	Kind string `json:"kind"`
	Port uint16 `json:"port"`
	// TrafficPolicy is Cluster or Local.
	TrafficPolicy string `json:"trafficPolicy"`
	// Verdict is Balance (sent to an endpoint), Reject, Drop, or NotServed.
	Verdict string `json:"verdict"`
	// Reason is why, in words.
	Reason string `json:"reason"`
	// Masquerade is which sources are replaced by the node's address: none, off-cluster sources, or all.
	Masquerade string `json:"masquerade,omitempty"`
	// Endpoints is how many endpoints share the connections.
	Endpoints int `json:"endpoints"`
	// Connections and Refused are the numbers of connections, and of packets rejected or dropped for want of an endpoint.
	Connections *uint64 `json:"connections,omitempty"`
	Refused     *uint64 `json:"refused,omitempty"`
	// Limited is the number of first packets dropped because of ConnectionLimits; Connections includes them. Absent without limits.
	Limited *uint64 `json:"limited,omitempty"`
}

// Endpoint is an entry of an EndpointSlice for one port of the Service.
type Endpoint struct {
	// Address is IP:port; only the IP address if the slice lacks the port.
	Address string `json:"address"`
	Slice   string `json:"slice"`
	// Ready, Serving and Terminating are the conditions.
	Ready       bool `json:"ready"`
	Serving     bool `json:"serving"`
	Terminating bool `json:"terminating"`
	// Location is ThisNode, OtherNode, or Unknown without a node name.
	Location string `json:"location"`
	// Weight is how many connections it gets in proportion to others; absent if that is the default, or weights are not honoured.
	Weight *int `json:"weight,omitempty"`
	// Zones are those that it is hinted for (hints.forZones); absent without such a hint.
	Zones []string `json:"zones,omitempty"`
	// UsedBy are the Service's traffic policies that use it.
	UsedBy []string `json:"usedBy,omitempty"`
	// LeftOut is why its other policies do not.
	LeftOut []LeftOut `json:"leftOut,omitempty"`
	// Connections is the number of connections over all addresses of the port; with session affinity in nftables mode, only
	// the first ones of clients. Absent if it is not used.
	Connections *uint64 `json:"connections,omitempty"`
}

// LeftOut is why a traffic policy does not use an endpoint.
type LeftOut struct {
	TrafficPolicy string `json:"trafficPolicy"`
	// Reason is NotReady, Terminating, OtherNode, OtherZone, NoWeight, NotLocal, WrongFamily, NoSuchPort, Duplicate or OwnClusterIP.
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

// Slice is an EndpointSlice.
type Slice struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Service is its label kubernetes.io/service-name.
	Service string `json:"service"`
	// Ports are name/protocol/number, such as http/TCP/8080.
	Ports []string `json:"ports"`
	// Endpoints is how many it has.
	Endpoints int `json:"endpoints"`
}

// OpenConnections are the connections that are open now through this node's rules, by Service and endpoint. Served at /connections, with the
// parameters service (NAMESPACE/NAME) and endpoint (an IP address).
type OpenConnections struct {
	TypeMeta
	// Time is when they were counted.
	Time time.Time `json:"time"`
	// Connections is their number: TCP connections that not both ends have closed, and UDP flows and SCTP associations until conntrack
	// forgets them.
	Connections int `json:"connections"`
	// Items are the endpoints with any, those with most of them first.
	Items []OpenEndpoint `json:"items"`
	// EndpointsNotListed is how many more there are than the 20,000 listed ones.
	EndpointsNotListed int `json:"endpointsNotListed,omitempty"`
	// NodeDraining is whether the Node is being deleted, or the cluster autoscaler is about to: then /healthz answers 503, so that load
	// balancers send no new connections.
	NodeDraining bool `json:"nodeDraining,omitempty"`
}

// OpenEndpoint is an endpoint to which connections to a Service's addresses are open.
type OpenEndpoint struct {
	// Namespace and Name are the Service's.
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Protocol is TCP, UDP or SCTP.
	Protocol string `json:"protocol"`
	// Endpoint is IP:port.
	Endpoint string `json:"endpoint"`
	// State is Ready, NotReady, TerminatingServing, Terminating, or Gone (no EndpointSlice of the Service lists it).
	State       string `json:"state"`
	Connections int    `json:"connections"`
}

// HealthCheck is the answer to the health checks of load balancers.
type HealthCheck struct {
	// Port is a TCP port of this node.
	Port uint16 `json:"port"`
	// LocalEndpoints is how many ready endpoints this node has, by IP family.
	LocalEndpoints map[string]int `json:"localEndpoints"`
}

// Change is the last change of a Service.
type Change struct {
	// Arrived is when it reached the proxy; changes that one sync programs have the time of the first.
	Arrived time.Time `json:"arrived"`
	// Programmed is when the rules were in force; absent before.
	Programmed *time.Time `json:"programmed,omitempty"`
	// Seconds is the time from one to the other.
	Seconds *float64 `json:"seconds,omitempty"`
}

// Problem is a reason why connections fail.
type Problem struct {
	// Reason is a word; of a Service NoSuchPort, NoEndpoints, NoLocalEndpoints, Contested, ExternalIPsNotServed, FamilyNotServed,
	// StatusNotServed, TooLarge, BalancingNotServed, LimitsNotServed, RefusedByKernel, ChangeDelayed or HealthCheckNotServed.
	Reason string `json:"reason"`
	// Message is what is wrong, with the objects' names, and what to do.
	Message string `json:"message"`
	// Port, Family and Address are what fails, if it is one alone; the port as NAMESPACE/NAME:PORT/PROTOCOL.
	Port    string `json:"port,omitempty"`
	Family  string `json:"family,omitempty"`
	Address string `json:"address,omitempty"`
}

// Explanation is the way of one connection. Served at /explain, with the parameters from (node, external, or an IP
// address), to (IP:PORT[/PROTOCOL], or NAMESPACE/NAME[:PORT[/PROTOCOL]]), and interface (which the packet arrives on, if
// local traffic is detected by it).
type Explanation struct {
	TypeMeta
	From string `json:"from"`
	// Source is its IP address.
	Source   string `json:"source"`
	To       string `json:"to"`
	Protocol string `json:"protocol"`
	// Steps are the decisions in their order.
	Steps []Step `json:"steps"`
	// Verdict is Balance (sent to an endpoint), Reject, Drop, or Pass (the proxy leaves it alone).
	Verdict string `json:"verdict"`
	Reason  string `json:"reason"`
	// Service and Port are absent if the destination is no Service's.
	Service string `json:"service,omitempty"`
	Port    string `json:"port,omitempty"`
	// Endpoints are the possible ones.
	Endpoints []string `json:"endpoints,omitempty"`
	// Picked is how one of several endpoints is picked, in words; absent if at random with equal probability.
	Picked string `json:"picked,omitempty"`
	// Masqueraded is whether the endpoint sees the node's address as the source.
	Masqueraded bool `json:"masqueraded"`
	// Hairpin is whether it does only if it is the source itself.
	Hairpin bool `json:"hairpin,omitempty"`
	// Trial is the result of real connections, printed by "kube-proxy explain --try -o json"; not served.
	Trial *Trial `json:"trial,omitempty"`
}

// Step is one decision.
type Step struct {
	// Subject is address, source, source ranges, policy, endpoints, affinity or masquerade; question for what was assumed; or
	// problem for what else is wrong with the Service.
	Subject string `json:"subject"`
	Text    string `json:"text"`
}

// Ruleset is the rules that the kernel should have. Served at /rules, with the parameter mode for another proxy mode.
type Ruleset struct {
	TypeMeta
	Mode     string        `json:"mode"`
	Families []FamilyRules `json:"families"`
}

// FamilyRules are the rules of one IP family.
type FamilyRules struct {
	Family string `json:"family"`
	Rules  string `json:"rules"`
}

// Comparison is where the kernel's rules differ from what they should be. Served at /comparison, with the parameter mode
// for the rules of another proxy mode.
type Comparison struct {
	TypeMeta
	Mode  string       `json:"mode"`
	Items []Difference `json:"items"`
}

// Difference is a chain, set or map that differs.
type Difference struct {
	Family string `json:"family"`
	Object string `json:"object"`
	// Note is what missing and extra do not show.
	Note string `json:"note,omitempty"`
	// Missing and Extra are the rules or elements that the kernel lacks, and that only it has.
	Missing []string `json:"missing,omitempty"`
	Extra   []string `json:"extra,omitempty"`
}
