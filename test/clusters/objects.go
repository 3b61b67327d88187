package clusters

import (
	"fmt"
	"strings"
)

// Service returns the manifest of a Service, as YAML. The name is "namespace/name"; the spec lists the fields of the spec in
// flow style, such as "clusterIP: 10.96.0.10, ports: [{port: 80}]", and each annotation is a key and a value. A caller may append the status.
func Service(name, spec string, annotations ...string) string {
	namespace, name, _ := strings.Cut(name, "/")
	metadata := "name: " + name + ", namespace: " + namespace
	if len(annotations) > 0 {
		metadata += ", annotations: {" + strings.Join(annotations, ", ") + "}"
	}
	return fmt.Sprintf("---\napiVersion: v1\nkind: Service\nmetadata: {%s}\nspec: {%s}\n", metadata, spec)
}

// LoadBalancer is the status of a Service with this load balancer IP.
func LoadBalancer(ip string) string { return "status: {loadBalancer: {ingress: [{ip: " + ip + "}]}}\n" }

// Slice returns the manifest of an IPv4 EndpointSlice of a Service, as YAML. The Service's name is "namespace/name"; the port
// and each endpoint are objects in flow style, such as "{name: http, port: 8080}" and "{addresses: [10.244.1.2]}".
func Slice(service, name, port string, endpoints ...string) string {
	namespace, service, _ := strings.Cut(service, "/")
	return fmt.Sprintf("---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: %s, namespace: %s, labels: {kubernetes.io/service-name: %s}}\n"+
		"addressType: IPv4\nports: [%s]\nendpoints: [%s]\n", name, namespace, service, port, strings.Join(endpoints, ", "))
}
