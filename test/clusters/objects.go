package clusters

import (
	"fmt"
	"strings"
)

// Service returns the manifest of a Service, as YAML. The name is "namespace/name"; the spec lists the fields of the spec in
// flow style, such as "clusterIP: 10.96.0.10, ports: [{port: 80}]". A caller may append the status.
func Service(name, spec string) string {
	namespace, name, _ := strings.Cut(name, "/")
	return fmt.Sprintf("---\napiVersion: v1\nkind: Service\nmetadata: {name: %s, namespace: %s}\nspec: {%s}\n", name, namespace, spec)
}

// Slice returns the manifest of an IPv4 EndpointSlice of a Service, as YAML. The Service's name is "namespace/name"; the port
// and each endpoint are objects in flow style, such as "{name: http, port: 8080}" and "{addresses: [10.244.1.2]}".
func Slice(service, name, port string, endpoints ...string) string {
	namespace, service, _ := strings.Cut(service, "/")
	return fmt.Sprintf("---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: %s, namespace: %s, labels: {kubernetes.io/service-name: %s}}\n"+
		"addressType: IPv4\nports: [%s]\nendpoints: [%s]\n", name, namespace, service, port, strings.Join(endpoints, ", "))
}
