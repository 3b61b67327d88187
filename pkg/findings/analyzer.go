// Package findings finds, in the objects of a cluster, what does not work or may not be intended. A finding has a [Code],
// which belongs to groups. The group Upgrade ("kube-proxy audit") checks one object after another and keeps only findings
// and addresses, so that a cluster of any size passes through it. The other groups build the proxy's snapshot and plan, and ask
// these. Objects come from an API server ([Cluster]) or from manifests.
package findings

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/status/v1alpha1"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/source/manifests"
	"github.com/seed-11a05479/kube-proxy/pkg/terminal"
)

// Finding is something to look at.
type Finding struct {
	Code     Code     `json:"code"`
	Severity Severity `json:"severity"`
	// Kind, Namespace and Name identify the object; a Node has no namespace, and the name of a File is its path.
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// Message says what is so, and what follows.
	Message string `json:"message"`
	// Manifest is what to write instead, in YAML, where that is known.
	Manifest string `json:"manifest,omitempty"`
	// Hint says what to do, as the code's definition does.
	Hint string `json:"hint"`
}

// Object returns "Service shop/web" or "Node n1".
func (f *Finding) Object() string {
	if f.Namespace == "" {
		return f.Kind + " " + f.Name
	}
	return f.Kind + " " + f.Namespace + "/" + f.Name
}

// Report lists what an Analyzer found, and counts what it looked at.
type Report struct {
	v1alpha1.TypeMeta
	Services       int `json:"services"`
	EndpointSlices int `json:"endpointSlices"`
	Nodes          int `json:"nodes"`
	// ModeDifferences are what a change of the mode changes for all Services, whatever they are. They are no findings.
	ModeDifferences []string `json:"modeDifferences,omitempty"`
	// Findings are sorted by code, then by object; never nil.
	Findings []Finding `json:"findings"`
}

// Looked returns "3 Services, 4 EndpointSlices and 1 Node", without EndpointSlices if none were read.
func (r *Report) Looked() string {
	services := terminal.Count(r.Services, "Service")
	if r.EndpointSlices > 0 {
		services += ", " + terminal.Count(r.EndpointSlices, "EndpointSlice")
	}
	return services + " and " + terminal.Count(r.Nodes, "Node")
}

// Options select the findings. The zero value checks everything except node ports: the mode does not change.
type Options struct {
	// From and To are the modes before and after a change.
	From, To ModeNodePorts
	// OldestKernel is the Linux version that the mode To needs; empty means any.
	OldestKernel string
	// Differences are what the change of mode changes for all Services; the report repeats them.
	Differences []string
	// Groups are the groups to check; empty means all.
	Groups []Group
	// Skip are codes to leave out.
	Skip []Code
	// Namespaces are those whose findings are reported; empty means all. All objects are considered in any case.
	Namespaces []string
	// Plan are the settings that the plan is computed with; nil means the zero value.
	Plan *plan.Options
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

// Analyzer looks at objects.
type Analyzer struct {
	options  Options
	wanted   map[Code]Severity
	report   Report
	nodes    map[netip.Addr]string // owners of addresses, by name
	clusters map[netip.Addr]string // Services of cluster IPs, by namespace/name
	claims   []claim
	// objects is nil if only the group Upgrade is checked.
	objects *objects
}

// claim is an external IP of a Service.
type claim struct {
	addr            netip.Addr
	namespace, name string
}

// New returns an Analyzer that has seen nothing yet.
func New(options Options) *Analyzer {
	a := &Analyzer{options: options, report: Report{TypeMeta: v1alpha1.Meta(v1alpha1.KindAnalysis), ModeDifferences: options.Differences, Findings: []Finding{}},
		wanted: map[Code]Severity{}, nodes: map[netip.Addr]string{}, clusters: map[netip.Addr]string{}}
	for _, code := range Codes(options.Groups...) {
		if d, _ := Define(code); !slices.Contains(options.Skip, code) {
			a.wanted[code] = d.Severity
		}
	}
	if len(options.Groups) == 0 || slices.ContainsFunc(options.Groups, func(g Group) bool { return g != Upgrade }) {
		a.objects = newObjects()
	}
	return a
}

// Look looks at a Node, Service, EndpointSlice or ServiceCIDR, and changes it.
func (a *Analyzer) Look(object runtime.Object) {
	switch o := object.(type) {
	case *corev1.Node:
		a.lookAtNode(o)
	case *corev1.Service:
		a.lookAtService(o)
	case *discoveryv1.EndpointSlice:
		if a.objects != nil {
			a.report.EndpointSlices++
			a.problems(a.objects.slice(o))
		}
	case *networkingv1.ServiceCIDR:
		if a.objects != nil {
			a.problems(a.objects.builder.Update(func(u *cluster.Update) { u.SetServiceCIDR(o) }))
		}
	}
}

// Manifests looks at the objects of manifests, and at what a proxy that reads these refuses.
func (a *Analyzer) Manifests(read manifests.File) {
	for _, object := range read.Objects {
		a.Look(object)
	}
	for _, r := range read.Refused {
		a.Add(Finding{Code: RefusedManifest, Kind: r.Object.Kind, Namespace: r.Object.Namespace, Name: r.Object.Name, Message: r.Error()})
	}
}

func (a *Analyzer) lookAtNode(node *corev1.Node) {
	a.report.Nodes++
	for _, address := range node.Status.Addresses {
		if addr, ok := parse(address.Address); ok {
			a.nodes[addr] = node.Name
		}
	}
	if version := node.Status.NodeInfo.KubeProxyVersion; version != "" { //nolint:staticcheck // that it is deprecated is the finding
		a.Add(Finding{Code: NodeKubeProxyVersion, Kind: "Node", Name: node.Name,
			Message: "status.nodeInfo.kubeProxyVersion says " + version + ", which is kubelet's version"})
	}
	a.kernel(node)
	if a.objects != nil {
		a.node(node)
	}
}

func (a *Analyzer) lookAtService(s *corev1.Service) {
	a.report.Services++
	if s.Namespace == "" {
		s.Namespace = corev1.NamespaceDefault // as in a file
	}
	for _, text := range clusterIPs(s) {
		if addr, ok := parse(text); ok {
			a.clusters[addr] = s.Namespace + "/" + s.Name
		}
	}
	a.externalIPs(s)
	a.loadBalancerIP(s)
	a.status(s)
	a.nodePorts(s)
	if a.objects != nil {
		a.problems(a.objects.service(s))
	}
}

// Add notes a finding, unless its code is left out. It sets the severity to that of the code, if the finding has none.
func (a *Analyzer) Add(f Finding) {
	severity, wanted := a.wanted[f.Code]
	if !wanted || f.Namespace != "" && len(a.options.Namespaces) > 0 && !slices.Contains(a.options.Namespaces, f.Namespace) {
		return
	}
	d, _ := Define(f.Code)
	f.Severity, f.Hint = cmp.Or(f.Severity, severity), d.Remedy
	a.report.Findings = append(a.report.Findings, f)
}

// Report returns what was found in the objects so far. Nothing may be added afterwards.
func (a *Analyzer) Report() *Report {
	for _, c := range a.claims {
		owner := ""
		if node, ok := a.nodes[c.addr]; ok {
			owner = "an address of node " + node
		} else if service, ok := a.clusters[c.addr]; ok && service != c.namespace+"/"+c.name {
			owner = "the cluster IP of Service " + service
		}
		if owner != "" {
			a.Add(Finding{Code: ExternalIPCapture, Kind: "Service", Namespace: c.namespace, Name: c.name,
				Message: "external IP " + c.addr.String() + " is " + owner + ": with external IPs served, it draws that traffic"})
		}
	}
	if a.objects != nil {
		a.analyze()
	}
	rank := map[Code]int{}
	for i, code := range Codes() {
		rank[code] = i
	}
	slices.SortStableFunc(a.report.Findings, func(x, y Finding) int {
		return cmp.Or(cmp.Compare(rank[x.Code], rank[y.Code]), strings.Compare(x.Kind, y.Kind), strings.Compare(x.Namespace, y.Namespace),
			strings.Compare(x.Name, y.Name), strings.Compare(x.Message, y.Message))
	})
	return &a.report
}

// parse reads an address as the API server does, which lets leading zeros pass in old objects.
func parse(text string) (netip.Addr, bool) {
	if text == "" || text == corev1.ClusterIPNone {
		return netip.Addr{}, false
	}
	addr, err := cluster.ParseAddr(text)
	return addr, err == nil
}
