package findings

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// found adds a finding about a Service.
func (a *Analyzer) found(code Code, s *corev1.Service, message, manifest string) {
	a.Add(Finding{Code: code, Kind: "Service", Namespace: s.Namespace, Name: s.Name, Message: message, Manifest: manifest})
}

func clusterIPs(s *corev1.Service) []string {
	if len(s.Spec.ClusterIPs) > 0 {
		return s.Spec.ClusterIPs
	}
	return []string{s.Spec.ClusterIP}
}

// externalIPs finds external IPs, and records them for ExternalIPCapture. Those that another proxy serves are ignored.
func (a *Analyzer) externalIPs(s *corev1.Service) {
	if _, foreign := s.Labels[cluster.LabelServiceProxyName]; foreign || len(s.Spec.ExternalIPs) == 0 {
		return
	}
	switch reason := unserved(s); {
	case reason != "":
		a.found(ExternalIPs, s, strings.Join(s.Spec.ExternalIPs, ", ")+": no effect, because "+reason, instead(s))
		return
	case len(acknowledged(s)) > 0:
		a.found(ExternalIPs, s, frontends(s)+": stop working; acknowledged are "+strings.Join(acknowledged(s), ", "), instead(s))
	default:
		a.found(ExternalIPs, s, frontends(s)+": stop working", instead(s))
	}
	for _, text := range s.Spec.ExternalIPs {
		if addr, ok := parse(text); ok {
			a.claims = append(a.claims, claim{addr, s.Namespace, s.Name})
		}
	}
}

// unserved returns why this proxy serves no address of a Service, "" if it does.
func unserved(s *corev1.Service) string {
	switch name, foreign := s.Labels[cluster.LabelServiceProxyName]; {
	case foreign:
		return "the Service is for the proxy " + name
	case s.Spec.Type == corev1.ServiceTypeExternalName:
		return "the Service is an ExternalName"
	case s.Spec.ClusterIP == corev1.ClusterIPNone:
		return "the Service is headless"
	}
	return ""
}

// frontends lists all combinations of the external IPs and ports.
func frontends(s *corev1.Service) string {
	var all []string
	for _, addr := range s.Spec.ExternalIPs {
		if strings.Contains(addr, ":") {
			addr = "[" + addr + "]"
		}
		for _, port := range s.Spec.Ports {
			all = append(all, fmt.Sprintf("%s:%d/%s", addr, port.Port, protocol(&port)))
		}
	}
	return strings.Join(all, ", ")
}

func protocol(port *corev1.ServicePort) corev1.Protocol {
	if port.Protocol == "" {
		return corev1.ProtocolTCP
	}
	return port.Protocol
}

// acknowledged returns the addresses in the status of a Service of type LoadBalancer.
func acknowledged(s *corev1.Service) []string {
	var addrs []string
	if s.Spec.Type == corev1.ServiceTypeLoadBalancer {
		for _, ingress := range s.Status.LoadBalancer.Ingress {
			if ingress.IP != "" {
				addrs = append(addrs, ingress.IP)
			}
		}
	}
	return addrs
}

// loadBalancerIP finds a spec.loadBalancerIP that is not in the status.
func (a *Analyzer) loadBalancerIP(s *corev1.Service) {
	asked := s.Spec.LoadBalancerIP
	if asked == "" || s.Spec.Type != corev1.ServiceTypeLoadBalancer || unserved(s) != "" {
		return
	}
	granted := acknowledged(s)
	wanted, ok := parse(asked)
	if slices.ContainsFunc(granted, func(text string) bool { addr, is := parse(text); return text == asked || ok && is && addr == wanted }) {
		return
	}
	message := "asks for " + asked + ", which status does not acknowledge: no traffic to it is served"
	if len(granted) > 0 {
		message += "; acknowledged are " + strings.Join(granted, ", ")
	}
	a.found(LoadBalancerIP, s, message, "")
}

// status finds addresses in the status of a Service of another type, which Kubernetes' own kube-proxy serves. Where all objects are read, the
// plan finds them.
func (a *Analyzer) status(s *corev1.Service) {
	if a.objects != nil || s.Spec.Type == corev1.ServiceTypeLoadBalancer || unserved(s) != "" {
		return
	}
	for _, ingress := range s.Status.LoadBalancer.Ingress {
		if ingress.IP != "" {
			a.found(plan.ProblemStatusNotServed, s, ingress.IP+" is in status.loadBalancer, but the type is "+string(cmp.Or(s.Spec.Type, corev1.ServiceTypeClusterIP))+": Kubernetes' own kube-proxy serves it, this one does not", "")
		}
	}
}

// nodePorts finds node ports that are served on other addresses after a change of mode.
func (a *Analyzer) nodePorts(s *corev1.Service) {
	more, less := a.options.From, a.options.To
	everywhere := more.Everywhere != less.Everywhere
	if everywhere && less.Everywhere || !everywhere && len(less.Localhost) > len(more.Localhost) {
		more, less = less, more
	}
	var ports, onLocalhost []string // that more serves in more places than less
	for _, port := range s.Spec.Ports {
		if port.NodePort == 0 {
			continue
		}
		text, of := fmt.Sprintf("%d/%s", port.NodePort, protocol(&port)), string(protocol(&port))
		ports = append(ports, text)
		if slices.Contains(more.Localhost, of) && !slices.Contains(less.Localhost, of) {
			onLocalhost = append(onLocalhost, text)
		}
	}
	if len(ports) == 0 || unserved(s) != "" {
		return
	}
	const localhost = "127.0.0.1, which clients on the node may use"
	message := strings.Join(ports, ", ") + ": " + more.Mode + " mode serves them on "
	switch {
	case everywhere && len(onLocalhost) > 0:
		message += "every address of a node and on " + localhost + "; " + less.Mode + " mode on the primary addresses"
	case everywhere:
		message += "every address of a node; " + less.Mode + " mode on the primary addresses"
	case len(onLocalhost) == 0:
		return
	case len(less.Localhost) == 0:
		message += localhost + "; " + less.Mode + " mode does not"
	default:
		message = strings.Join(onLocalhost, ", ") + ": " + more.Mode + " mode serves them on " + localhost + "; " + less.Mode +
			" mode serves " + strings.Join(less.Localhost, ", ") + " there and rejects them"
	}
	a.found(NodePorts, s, message, "")
}

// kernel finds a node whose kernel has a lower number than the mode after the change needs.
func (a *Analyzer) kernel(node *corev1.Node) {
	info := &node.Status.NodeInfo
	if a.options.OldestKernel == "" || info.OperatingSystem == "windows" {
		return
	}
	if has, err := version.ParseGeneric(info.KernelVersion); err == nil && !has.AtLeast(version.MustParseGeneric(a.options.OldestKernel)) {
		a.Add(Finding{Code: NodeKernel, Kind: "Node", Name: node.Name,
			Message: fmt.Sprintf("Linux %s: %s mode needs %s", info.KernelVersion, a.options.To.Mode, a.options.OldestKernel)})
	}
}
