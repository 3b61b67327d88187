// Package audit finds objects of a cluster that this proxy may not serve as users expect: addresses that no controller
// acknowledged, deprecated fields, and differences between proxy modes. It reads one object at a time and keeps only
// findings and addresses, so that its memory does not depend on the size of the cluster's objects.
package audit

import (
	"cmp"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	netutils "k8s.io/utils/net"
)

// Check is a kind of finding. Scripts may rely on its name.
type Check string

// The checks.
const (
	// ExternalIPs finds Services with spec.externalIPs, which are not served without the feature gate AllowServiceExternalIPs.
	ExternalIPs Check = "ExternalIPs"
	// ExternalIPCapture finds external IPs that are a node's address or another Service's cluster IP: with the gate on,
	// such a Service captures traffic to that address.
	ExternalIPCapture Check = "ExternalIPCapture"
	// LoadBalancerIP finds Services whose spec.loadBalancerIP is not in their status.
	LoadBalancerIP Check = "LoadBalancerIPNotAcknowledged"
	// NodePorts finds Services whose node ports are served on other addresses after a change of the mode.
	NodePorts Check = "NodePortsDifferByMode"
	// NodeKubeProxyVersion finds Nodes that report status.nodeInfo.kubeProxyVersion.
	NodeKubeProxyVersion Check = "NodeKubeProxyVersion"
	// Configuration finds deprecated fields in a configuration file.
	Configuration Check = "DeprecatedConfiguration"
)

// Checks lists all checks, in the order of a report.
func Checks() []Check {
	return []Check{ExternalIPs, ExternalIPCapture, LoadBalancerIP, NodePorts, NodeKubeProxyVersion, Configuration}
}

// Remedy returns what to do about the findings of a check.
func (c Check) Remedy() string {
	return map[Check]string{
		ExternalIPs: "Let a controller acknowledge an address: a Service of type LoadBalancer, a Gateway or an Ingress. The manifests " +
			"to write instead: -o manifests. For a while, the feature gate AllowServiceExternalIPs serves external IPs. See docs/external-ips.md.",
		ExternalIPCapture: "Find out who wrote the Service. It draws traffic that is meant for others as long as external IPs are served.",
		LoadBalancerIP: "spec.loadBalancerIP is a request, and deprecated; only what status.loadBalancer.ingress acknowledges is served. " +
			"See whether the controller for load balancers runs and may give that address, or remove the field.",
		NodePorts: "Before a change of mode, let clients use the node's primary address, or say in nodePortAddresses where node ports are wanted.",
		NodeKubeProxyVersion: "kubelet filled the field in, which does not know the proxy's version; read the metric kubernetes_build_info of the proxy " +
			"instead. kubelet leaves it unset with the feature gate DisableNodeKubeProxyVersion.",
		Configuration: "\"kube-proxy config convert\" writes the file in the latest version; \"kube-proxy config explain\" tells of each field.",
	}[c]
}

// Finding is what a check found in an object.
type Finding struct {
	Check Check `json:"check"`
	// Kind, Namespace and Name identify the object: a Service, a Node without namespace, or a File by its path.
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// Message describes the finding and its effect.
	Message string `json:"message"`
	// Manifest is the suggested replacement of the object, in YAML; empty if there is none.
	Manifest string `json:"manifest,omitempty"`
}

func (f *Finding) compare(o *Finding) int {
	return cmp.Or(
		cmp.Compare(slices.Index(Checks(), f.Check), slices.Index(Checks(), o.Check)),
		cmp.Compare(f.Kind, o.Kind), cmp.Compare(f.Namespace, o.Namespace), cmp.Compare(f.Name, o.Name), cmp.Compare(f.Message, o.Message),
	)
}

// Report contains the findings, and the number of objects audited.
type Report struct {
	Services int `json:"services"`
	Nodes    int `json:"nodes"`
	// Findings are sorted by check, then by object; never nil.
	Findings []Finding `json:"findings"`
}

// Options are what is known of the proxy's configuration. The zero value does not check node ports: the mode does not change.
type Options struct {
	// From and To are the modes before and after the change.
	From, To ModeNodePorts
	// Skip are the checks to leave out.
	Skip []Check
}

// ModeNodePorts is where a mode serves node ports.
type ModeNodePorts struct {
	// Mode is its name.
	Mode string
	// Everywhere is true if it serves them on every address of a node, because that is its default, and false if it
	// serves them on the primary addresses or on those that nodePortAddresses lists.
	Everywhere bool
	// Localhost are the protocols that it serves on 127.0.0.1: TCP, UDP, SCTP.
	Localhost []string
}

// Auditor audits objects.
type Auditor struct {
	options  Options
	report   Report
	nodes    map[netip.Addr]string // names of nodes by address
	clusters map[netip.Addr]string // namespace/name of Services by cluster IP
	claims   []claim
}

// claim is an external IP of a Service.
type claim struct {
	addr            netip.Addr
	namespace, name string
}

// New returns an Auditor.
func New(options Options) *Auditor {
	return &Auditor{options: options, report: Report{Findings: []Finding{}}, nodes: map[netip.Addr]string{}, clusters: map[netip.Addr]string{}}
}

// Node audits a Node. The Auditor does not keep it.
func (a *Auditor) Node(node *corev1.Node) {
	a.report.Nodes++
	for _, address := range node.Status.Addresses {
		if addr, ok := parse(address.Address); ok {
			a.nodes[addr] = node.Name
		}
	}
	if version := node.Status.NodeInfo.KubeProxyVersion; version != "" { //nolint:staticcheck // the finding is about this deprecated field
		a.Add(Finding{Check: NodeKubeProxyVersion, Kind: "Node", Name: node.Name,
			Message: "status.nodeInfo.kubeProxyVersion says " + version + ", which is kubelet's version"})
	}
}

// Add adds a finding unless its check is skipped.
func (a *Auditor) Add(f Finding) {
	if !slices.Contains(a.options.Skip, f.Check) {
		a.report.Findings = append(a.report.Findings, f)
	}
}

// Report returns the findings. The Auditor must not be used afterwards.
func (a *Auditor) Report() *Report {
	for _, c := range a.claims {
		owner := ""
		if node, ok := a.nodes[c.addr]; ok {
			owner = "an address of node " + node
		} else if service, ok := a.clusters[c.addr]; ok && service != c.namespace+"/"+c.name {
			owner = "the cluster IP of Service " + service
		}
		if owner != "" {
			a.Add(Finding{Check: ExternalIPCapture, Kind: "Service", Namespace: c.namespace, Name: c.name,
				Message: "external IP " + c.addr.String() + " is " + owner + ": with external IPs served, it draws that traffic"})
		}
	}
	slices.SortFunc(a.report.Findings, func(x, y Finding) int { return x.compare(&y) })
	return &a.report
}

// parse parses an address. Like the API server it accepts leading zeros, which old objects may have.
func parse(text string) (netip.Addr, bool) {
	addr, ok := netip.AddrFromSlice(netutils.ParseIPSloppy(text))
	return addr.Unmap(), ok
}
