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
	KindStatus      = "Status"
)

// TypeMeta identifies an object.
type TypeMeta struct {
	// Kind is the type of the object.
	Kind string `json:"kind"`
	// APIVersion is serviceproxy/v1alpha1.
	APIVersion string `json:"apiVersion"`
}

// Meta returns the TypeMeta of a kind.
func Meta(kind string) TypeMeta { return TypeMeta{Kind: kind, APIVersion: APIVersion} }

// Status is the answer to a request that failed.
type Status struct {
	TypeMeta
	// Code is the HTTP status code.
	Code int `json:"code"`
	// Message describes the error and what to do.
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
	// Version is the version of the program.
	Version string `json:"version"`
	// Mode is the proxy mode: iptables or nftables. Empty if no proxy runs: the objects were read from files or a cluster.
	Mode string `json:"mode,omitempty"`
	// Node is the name of the Node.
	Node string `json:"node"`
	// NodeAddresses are the addresses of the Node, the primary one first.
	NodeAddresses []string `json:"nodeAddresses"`
	// NodePortAddresses are the addresses of this machine on which node ports are served.
	NodePortAddresses []string `json:"nodePortAddresses"`
	// Zone is the topology zone of the Node.
	Zone string `json:"zone,omitempty"`
	// Families are the IP families that are served.
	Families []string `json:"families,omitempty"`
	// Started is when the program started.
	Started *time.Time `json:"started,omitempty"`
	// Synced is when the state that the other paths serve was in force in all families; absent before the first time.
	Synced *time.Time `json:"synced,omitempty"`
	// Pending is since when a change of the cluster has been waiting to be programmed.
	Pending *time.Time `json:"pending,omitempty"`
	// Waiting names what the proxy waits for, such as the API server to list services.
	Waiting []string `json:"waiting,omitempty"`
	// Observed is the number of Services with each of those problems that no plan shows: RefusedByKernel, ChangeDelayed and
	// HealthCheckNotServed.
	Observed map[string]int `json:"observed,omitempty"`
	// Problems are what is wrong with the files that the proxy reads and with its settings: InvalidConfiguration, InvalidManifest, and
	// NoEndpointInClusterCIDR.
	Problems []Problem `json:"problems,omitempty"`
	// Sync is the last sync, which may have failed; absent before the first one.
	Sync *Sync `json:"sync,omitempty"`
	// ConnectionsCounted is what the kernel counts: endpoint (connections to each endpoint and address of a Service), service
	// (to each address), or none.
	ConnectionsCounted string `json:"connectionsCounted,omitempty"`
	// Services is the number of Services, Frontends that of addresses with protocol and port that are served.
	Services  int `json:"services"`
	Frontends int `json:"frontends"`
	// Contested is the number of frontends that several Services claim.
	Contested int `json:"contested"`
}

// Sync is the result of writing the rules once.
type Sync struct {
	// Started is when it began.
	Started time.Time `json:"started"`
	// Seconds is how long it took.
	Seconds float64 `json:"seconds"`
	// Families are the results in each IP family.
	Families []FamilySync `json:"families"`
}

// FamilySync is the result of a sync in one IP family.
type FamilySync struct {
	// Family is IPv4 or IPv6.
	Family string `json:"family"`
	// Seconds is how long it took.
	Seconds float64 `json:"seconds"`
	// Elements and Rules are the numbers of set elements and rules that were written.
	Elements int `json:"elements"`
	Rules    int `json:"rules"`
	// Error is the reason if it failed; the earlier rules stay in force then.
	Error string `json:"error,omitempty"`
}

// ServiceList is a list of Services, sorted by namespace and name. Served at /services, with the query parameters
// namespace, address (Services that have this address, or node ports on it), and connections=true (counters are read too).
type ServiceList struct {
	TypeMeta
	// Time is when the list was made, or when its counters were read.
	Time time.Time `json:"time"`
	// Items are the Services, without the endpoints of their ports.
	Items []Service `json:"items"`
	// Unowned are the EndpointSlices whose Service is not served. Absent with the parameter address.
	Unowned []Slice `json:"unowned,omitempty"`
	// ConnectionsError is why there are no counters although they were requested.
	ConnectionsError string `json:"connectionsError,omitempty"`
}

// Service is one Service as this node serves it. Served at /services/NAMESPACE/NAME, with the query parameter
// connections=true.
type Service struct {
	TypeMeta
	// Namespace and Name identify the Service.
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Time is when the object was made, or when its counters were read.
	Time *time.Time `json:"time,omitempty"`
	// ClusterIPs, LoadBalancerIPs and ExternalIPs are the Service's addresses, served or not.
	ClusterIPs      []string `json:"clusterIPs"`
	LoadBalancerIPs []string `json:"loadBalancerIPs,omitempty"`
	ExternalIPs     []string `json:"externalIPs,omitempty"`
	// InternalTrafficPolicy and ExternalTrafficPolicy are Cluster or Local.
	InternalTrafficPolicy string `json:"internalTrafficPolicy"`
	ExternalTrafficPolicy string `json:"externalTrafficPolicy"`
	// SessionAffinitySeconds is how long a client keeps its endpoint; 0 is not at all.
	SessionAffinitySeconds int `json:"sessionAffinitySeconds,omitempty"`
	// PreservesUDPFlows is whether UDP flows stay with an endpoint until it has terminated.
	PreservesUDPFlows bool `json:"preservesUDPFlows,omitempty"`
	// SourceRanges are the sources that may use the load balancer IPs; empty allows all.
	SourceRanges []string `json:"sourceRanges,omitempty"`
	// NodePortAddresses are the addresses of this machine on which the Service's node ports are served. Absent in a list.
	NodePortAddresses []string `json:"nodePortAddresses,omitempty"`
	// Endpoints counts the endpoint addresses. A pod with two IP families counts twice, one with several ports once.
	Endpoints EndpointCounts `json:"endpoints"`
	// Ports are the Service's ports.
	Ports []Port `json:"ports"`
	// EndpointsNotListed is the number of entries missing in the ports' lists of endpoints, which have at most 20,000. Absent in
	// a list.
	EndpointsNotListed int `json:"endpointsNotListed,omitempty"`
	// Slices are the EndpointSlices of the Service. Absent in a list.
	Slices []Slice `json:"slices,omitempty"`
	// HealthCheck is the answer to the health checks of load balancers; absent if there are none.
	HealthCheck *HealthCheck `json:"healthCheck,omitempty"`
	// Connections is the sum of the connections of all its addresses, and Refused that of the refused packets. Absent if
	// counters were not requested, or cannot be read.
	Connections *uint64 `json:"connections,omitempty"`
	Refused     *uint64 `json:"refused,omitempty"`
	// ConnectionsError is why there are no counters although they were requested.
	ConnectionsError string `json:"connectionsError,omitempty"`
	// Changed is the last change of the Service or its endpoints. Absent if there was none since the program started.
	Changed *Change `json:"changed,omitempty"`
	// Problems are the reasons why connections to some of its addresses fail on this node.
	Problems []Problem `json:"problems,omitempty"`
}

// EndpointCounts counts endpoint addresses of a Service.
type EndpointCounts struct {
	// Ready is the number of ready ones, Local that of ready ones on this node, All that of all in its EndpointSlices.
	Ready int `json:"ready"`
	Local int `json:"local"`
	All   int `json:"all"`
}

// Port is a port of a Service.
type Port struct {
	// Name is the port's name; it may be empty.
	Name string `json:"name,omitempty"`
	// Protocol is TCP, UDP or SCTP.
	Protocol string `json:"protocol"`
	// Port is the port on all addresses but those of the node, where it is NodePort; 0 is none.
	Port     uint16 `json:"port"`
	NodePort uint16 `json:"nodePort,omitempty"`
	// Addresses are where the port is served.
	Addresses []Address `json:"addresses"`
	// Endpoints are the endpoints in all of the Service's EndpointSlices. Absent in a list.
	Endpoints []Endpoint `json:"endpoints,omitempty"`
}

// Address is how connections to one address of a port are handled.
type Address struct {
	// Address is an IP address. For a NodePort it is 0.0.0.0 or ::, which means those of NodePortAddresses.
	Address string `json:"address"`
	// Kind is ClusterIP, LoadBalancerIP, ExternalIP or NodePort.
	Kind string `json:"kind"`
	// Port is the destination port.
	Port uint16 `json:"port"`
	// TrafficPolicy is the policy by which endpoints are chosen: Cluster or Local.
	TrafficPolicy string `json:"trafficPolicy"`
	// Verdict is Balance (sent to an endpoint), Reject, Drop, or NotServed.
	Verdict string `json:"verdict"`
	// Reason is why, in words.
	Reason string `json:"reason"`
	// Masquerade are the sources that are replaced by the node's address: none, off-cluster sources, all.
	Masquerade string `json:"masquerade,omitempty"`
	// Endpoints is the number of endpoints that connections are spread over.
	Endpoints int `json:"endpoints"`
	// Connections is the number of connections since the kernel's counter was last created, which it is when the number of
	// endpoints changes. Refused is the number of packets that were rejected or dropped for want of an endpoint.
	Connections *uint64 `json:"connections,omitempty"`
	Refused     *uint64 `json:"refused,omitempty"`
}

// Endpoint is an entry of an EndpointSlice for one port of the Service.
type Endpoint struct {
	// Address is IP:port; only the IP address if the slice does not have the port.
	Address string `json:"address"`
	// Slice is the name of the EndpointSlice.
	Slice string `json:"slice"`
	// Ready, Serving and Terminating are its conditions.
	Ready       bool `json:"ready"`
	Serving     bool `json:"serving"`
	Terminating bool `json:"terminating"`
	// Location is ThisNode, OtherNode, or Unknown if the slice has no node name.
	Location string `json:"location"`
	// UsedBy are the traffic policies of the Service under which connections are sent to it.
	UsedBy []string `json:"usedBy,omitempty"`
	// LeftOut is why connections are not sent to it under the Service's other policies.
	LeftOut []LeftOut `json:"leftOut,omitempty"`
	// Connections is the number of connections to it since the kernel's counter was last created, over all addresses of the
	// port. With session affinity in nftables mode it has only the first connection of each client. Absent if counters were
	// not requested, or it is not used.
	Connections *uint64 `json:"connections,omitempty"`
}

// LeftOut is why connections under one traffic policy are not sent to an endpoint.
type LeftOut struct {
	// TrafficPolicy is Cluster or Local.
	TrafficPolicy string `json:"trafficPolicy"`
	// Reason is NotReady, Terminating, OtherNode, OtherZone, NotLocal, WrongFamily, NoSuchPort or Duplicate.
	Reason string `json:"reason"`
	// Message is the reason in words.
	Message string `json:"message"`
}

// Slice is an EndpointSlice.
type Slice struct {
	// Namespace and Name identify the EndpointSlice, Service is the name in its label kubernetes.io/service-name.
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Service   string `json:"service"`
	// Ports are its ports as name/protocol/number, such as http/TCP/8080.
	Ports []string `json:"ports"`
	// Endpoints is the number of its endpoints.
	Endpoints int `json:"endpoints"`
}

// HealthCheck is the answer to the health checks of load balancers.
type HealthCheck struct {
	// Port is the TCP port on this node.
	Port uint16 `json:"port"`
	// LocalEndpoints is the number of ready endpoints on this node, by IP family.
	LocalEndpoints map[string]int `json:"localEndpoints"`
}

// Change is the last change of a Service.
type Change struct {
	// Arrived is when the change reached the proxy; changes that are programmed together have the time of the first.
	Arrived time.Time `json:"arrived"`
	// Programmed is when the rules were in force; absent if they are not yet.
	Programmed *time.Time `json:"programmed,omitempty"`
	// Seconds is the time from one to the other.
	Seconds *float64 `json:"seconds,omitempty"`
}

// Problem is a reason why connections fail.
type Problem struct {
	// Reason is a word; of a Service it is one of NoSuchPort, NoEndpoints, NoLocalEndpoints, Contested, ExternalIPsNotServed,
	// FamilyNotServed, StatusNotServed, TooLarge, RefusedByKernel, ChangeDelayed or HealthCheckNotServed.
	Reason string `json:"reason"`
	// Message says what is wrong, with the objects' names, and what to do.
	Message string `json:"message"`
	// Port (NAMESPACE/NAME:PORT/PROTOCOL), Family and Address are those that fail; absent if the problem is not one of them alone.
	Port    string `json:"port,omitempty"`
	Family  string `json:"family,omitempty"`
	Address string `json:"address,omitempty"`
}

// Explanation is the way of one connection. Served at /explain with the query parameters from (node, external, or an IP
// address), to (IP:PORT[/PROTOCOL], or NAMESPACE/NAME[:PORT[/PROTOCOL]]) and interface (which the packet arrives on; it matters
// only if local traffic is detected by it).
type Explanation struct {
	TypeMeta
	// From is the source as it was asked for, Source its IP address.
	From   string `json:"from"`
	Source string `json:"source"`
	// To is the destination IP:port, Protocol is TCP, UDP or SCTP.
	To       string `json:"to"`
	Protocol string `json:"protocol"`
	// Steps are the decisions in their order.
	Steps []Step `json:"steps"`
	// Verdict is Balance (sent to one of Endpoints), Reject, Drop, or Pass (the proxy leaves it alone).
	Verdict string `json:"verdict"`
	// Reason is why, in words.
	Reason string `json:"reason"`
	// Service and Port name the Service's port; empty if there is none.
	Service string `json:"service,omitempty"`
	Port    string `json:"port,omitempty"`
	// Endpoints are the possible endpoints, each with the same probability.
	Endpoints []string `json:"endpoints,omitempty"`
	// Masqueraded reports whether the endpoint sees the node's address as the source.
	Masqueraded bool `json:"masqueraded"`
	// Hairpin reports that the endpoint sees the node's address also without Masqueraded, if it is the source itself.
	Hairpin bool `json:"hairpin,omitempty"`
	// Trial is the result of real connections, printed by "kube-proxy explain --try -o json"; not served.
	Trial *Trial `json:"trial,omitempty"`
}

// Step is one decision.
type Step struct {
	// Subject is what is decided: address, source, source ranges, policy, endpoints, affinity, masquerade; or question,
	// for what was assumed, and problem, for what else is wrong with the Service.
	Subject string `json:"subject"`
	// Text is the decision and its reason.
	Text string `json:"text"`
}

// Trial is the result of connections that were sent from this node to the destination of an Explanation.
type Trial struct {
	// Succeeds reports whether they did what was explained, and no endpoint had to be asked itself.
	Succeeds bool `json:"succeeds"`
	// Connected, Refused, TimedOut, Denied and Failed are the numbers of connections by their results: Denied ones were refused by rules
	// of this node as they were sent, and Failed ones could not be sent.
	Connected int `json:"connected"`
	Refused   int `json:"refused"`
	TimedOut  int `json:"timedOut"`
	Denied    int `json:"denied"`
	Failed    int `json:"failed"`
	// Error is why the first of those that failed could not be sent.
	Error string `json:"error,omitempty"`
	// Endpoints are the results of those endpoints of which any are known.
	Endpoints []TriedEndpoint `json:"endpoints,omitempty"`
	// Conclusion says what the results mean.
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

// Ruleset is the rules that the plan in force makes. Served at /rules, with the query parameter mode for those of another
// proxy mode.
type Ruleset struct {
	TypeMeta
	// Mode is the proxy mode.
	Mode string `json:"mode"`
	// Families are the rules of each IP family.
	Families []FamilyRules `json:"families"`
}

// FamilyRules are the rules of one IP family.
type FamilyRules struct {
	// Family is IPv4 or IPv6.
	Family string `json:"family"`
	// Rules is their text as nft -f or iptables-restore --noflush loads it.
	Rules string `json:"rules"`
}

// Comparison is where the kernel's rules differ from those that the plan in force makes. Served at /comparison, with the
// query parameter mode for the rules of another proxy mode. The kernel is read for the request.
type Comparison struct {
	TypeMeta
	// Mode is the proxy mode.
	Mode string `json:"mode"`
	// Items are the differences, by IP family; empty if there are none.
	Items []Difference `json:"items"`
}

// Difference is a chain, set or map in which the kernel's rules differ.
type Difference struct {
	// Family is IPv4 or IPv6.
	Family string `json:"family"`
	// Object names the chain, set or map.
	Object string `json:"object"`
	// Note describes what missing and extra do not show.
	Note string `json:"note,omitempty"`
	// Missing are the rules or elements that only the plan has, Extra those that only the kernel has.
	Missing []string `json:"missing,omitempty"`
	Extra   []string `json:"extra,omitempty"`
}
