package findings

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/source/manifests"
	"github.com/seed-11a05479/kube-proxy/test/clusters"
)

// analyze returns the findings of the groups that "kube-proxy analyze" checks by default, without those about the text itself.
func analyze(t *testing.T, options Options, text string) []string {
	t.Helper()
	options.Groups = []Group{Endpoints, Addresses, Nodes}
	options.Skip = append(options.Skip, RefusedManifest)
	a := New(options)
	if file := read(a, text); file.Err != nil || len(file.Ignored) > 0 {
		t.Fatalf("passed over %v, %v", file.Ignored, file.Err)
	}
	return lines(a.Report())
}

// read lets an Analyzer look at the objects of a text.
func read(a *Analyzer, text string) manifests.File {
	file, err := manifests.Read("-", strings.NewReader(text))
	file.Err = errors.Join(file.Err, err)
	a.Manifests(file)
	return file
}

// svc is a Service of the namespace shop with a selector and port http; slice is a managed EndpointSlice of a Service.
func svc(name, spec string) string {
	return clusters.Service("shop/"+name, "selector: {app: a}, ports: [{name: http, port: 80}], "+spec)
}

func slice(service, name, fields string) string {
	return "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: " + name + ", namespace: shop, labels: {kubernetes.io/service-name: " + service +
		", endpointslice.kubernetes.io/managed-by: endpointslice-controller.k8s.io}}\n" + fields + "\n"
}

const (
	node   = "---\napiVersion: v1\nkind: Node\nmetadata: {name: n1}\nspec: {podCIDRs: [10.244.0.0/24]}\nstatus: {addresses: [{type: InternalIP, address: 172.18.0.2}]}\n"
	cidr   = "---\napiVersion: networking.k8s.io/v1\nkind: ServiceCIDR\nmetadata: {name: kubernetes}\nspec: {cidrs: [10.96.0.0/16, 'fd00:96::/112']}\n"
	ready  = "addressType: IPv4\nports: [{name: http, port: 8080}]\nendpoints: [{addresses: [10.244.0.5], nodeName: n1}]"
	ready6 = "addressType: IPv6\nports: [{name: http, port: 8080}]\nendpoints: [{addresses: ['fd00:244::5'], nodeName: n1}]"
	dual   = "clusterIP: 10.96.0.10, clusterIPs: [10.96.0.10, 'fd00:96::10']"
)

// with is a Service web with a ready endpoint, of type LoadBalancer with the given addresses.
func with(spec string, ips ...string) string {
	var ingress []string
	for _, ip := range ips {
		ingress = append(ingress, "{ip: '"+ip+"'}")
	}
	return svc("web", "type: LoadBalancer, "+spec) + "status: {loadBalancer: {ingress: [" + strings.Join(ingress, ", ") + "]}}\n" + slice("web", "web-1", ready)
}

// healthy is a cluster with the kinds of Services that there are in most clusters.
const healthy = node + cidr + `---
apiVersion: v1
kind: Service
metadata: {name: kubernetes, namespace: default, labels: {component: apiserver}}
spec: {clusterIP: 10.96.0.1, clusterIPs: [10.96.0.1], ports: [{name: https, port: 443}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: kubernetes, namespace: default, labels: {kubernetes.io/service-name: kubernetes}}
addressType: IPv4
ports: [{name: https, port: 6443}]
endpoints: [{addresses: [172.18.0.2]}]
---
apiVersion: v1
kind: Service
metadata: {name: headless, namespace: shop}
spec: {clusterIP: None, selector: {app: db}, ports: [{port: 5432}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: headless-1, namespace: shop, labels: {kubernetes.io/service-name: headless, service.kubernetes.io/headless: ''}}
addressType: IPv4
ports: [{name: '', port: 5432}]
endpoints: [{addresses: [10.244.0.9], nodeName: n1}]
---
apiVersion: v1
kind: Service
metadata: {name: outside, namespace: shop}
spec: {type: ExternalName, externalName: db.example}
---
apiVersion: v1
kind: Service
metadata: {name: theirs, namespace: shop, labels: {service.kubernetes.io/service-proxy-name: other}}
spec: {clusterIP: 10.96.0.77, ports: [{port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: lb, namespace: shop}
spec: {type: LoadBalancer, externalTrafficPolicy: Local, healthCheckNodePort: 31999, selector: {app: lb}, clusterIPs: [10.96.0.20, 'fd00:96::20'], clusterIP: 10.96.0.20,
  loadBalancerSourceRanges: [192.0.2.0/24, '2001:db8::/64'], sessionAffinity: ClientIP, ports: [{name: http, port: 80, nodePort: 30080}, {name: dns, port: 53, protocol: UDP, nodePort: 30053}]}
status: {loadBalancer: {ingress: [{ip: 198.51.100.1}, {ip: '2001:db8:1::1'}]}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: lb-4, namespace: shop, labels: {kubernetes.io/service-name: lb, endpointslice.kubernetes.io/managed-by: endpointslice-controller.k8s.io}}
addressType: IPv4
ports: [{name: http, port: 8080}, {name: dns, port: 5353, protocol: UDP}]
endpoints:
- {addresses: [10.244.0.7], nodeName: n1, hints: {forZones: [{name: a}]}}
- {addresses: [10.244.0.8], nodeName: n1, conditions: {ready: false, serving: true, terminating: true}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: lb-6, namespace: shop, labels: {kubernetes.io/service-name: lb, endpointslice.kubernetes.io/managed-by: endpointslice-controller.k8s.io}}
addressType: IPv6
ports: [{name: http, port: 8080}, {name: dns, port: 5353, protocol: UDP}]
endpoints: [{addresses: ['fd00:244::7'], nodeName: n1}]
`

// TestDefaults analyzes objects as people write them, without what an API server adds: fields with defaults are no findings, and a
// Service without a cluster IP is not looked at, nor are its slices. What a proxy would refuse is reported.
func TestDefaults(t *testing.T) {
	const service = "---\napiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: shop}\nspec: {ports: [{port: 80}]"
	object := slice("web", "web-1", "addressType: IPv4\nports: [{port: 8080}]\nendpoints: [{addresses: [10.244.0.5], nodeName: n1}]")
	for spec, want := range map[string]string{
		", clusterIP: 10.96.0.10": "", ", clusterIPs: [10.96.0.10]": "",
		"":                                "RefusedManifest Service shop/web: <stdin>:16: spec.clusterIP: is required, because there is no API server to allocate an address; use None for a headless Service",
		", clusterIP: 10.96.0.10, new: 1": `RefusedManifest Service shop/web: <stdin>:16: unknown field "spec.new"`,
	} {
		a := New(Options{Plan: &plan.Options{}, Groups: []Group{Endpoints, Addresses, Nodes}})
		if file := read(a, node+cidr+service+spec+"}\n"+object); file.Err != nil {
			t.Error(file.Err)
		}
		if found := strings.Join(lines(a.Report()), "\n"); found != want {
			t.Errorf("%q: found\n%s\nwant\n%s", spec, found, want)
		}
	}
}

// TestSome lists each text once, and counts those that it leaves out.
func TestSome(t *testing.T) {
	texts := strings.Fields("a b c d e f g")
	for want, of := range map[string][]string{
		"": nil, "a, b": {"a", "b", "a"}, "a, b, c, d, e": slices.Concat(texts[:5], texts[:5]),
		"a, b, c, d, e and 2 more": slices.Concat(texts, texts, texts),
	} {
		if got := some(of); got != want {
			t.Errorf("%v: %q, want %q", of, got, want)
		}
	}
}

func TestHealthyCluster(t *testing.T) {
	if found := analyze(t, Options{Plan: &plan.Options{NodeCIDR: true}}, healthy); len(found) > 0 {
		t.Errorf("findings in a healthy cluster:\n%s", strings.Join(found, "\n"))
	}
}

// found is a row of TestFindings: objects, and the findings that they lead to.
type found struct {
	name, objects string
	options       Options
	want          []string
}

func endpointRows() []found {
	web := svc("web", "clusterIP: 10.96.0.10")
	const compare = ": compare the port names of the Service (spec.ports[].name, and a targetPort that is a name) and of the pods' containers"
	notReady := strings.ReplaceAll(ready, "nodeName: n1", "nodeName: n1, conditions: {ready: false}")
	return []found{
		{"misspelt port name", web + slice("web", "web-1", strings.Replace(ready, "http", "htpp", 1)), Options{}, []string{
			"NoSuchPort Service shop/web: EndpointSlice shop/web-1 has no port http/TCP; it has htpp/TCP" + compare, "NoEndpoints Service shop/web: shop/web:http: connections are rejected: none of 1 ready endpoints can be used for this port"}},
		{"other protocol", web + slice("web", "web-1", strings.Replace(ready, "port: 8080", "port: 8080, protocol: UDP", 1)), Options{}, []string{
			"NoSuchPort Service shop/web: EndpointSlice shop/web-1 has no port http/TCP; it has http/UDP" + compare, "NoEndpoints Service shop/web: shop/web:http: connections are rejected: none of 1 ready endpoints can be used for this port"}},
		{"a port that no pod has", strings.Replace(web, "{name: http, port: 80}", "{name: http, port: 80}, {name: admin, port: 81, targetPort: adm}", 1) + slice("web", "web-1", ready), Options{}, []string{
			"NoSuchPort Service shop/web: EndpointSlice shop/web-1 has no port admin/TCP; it has http/TCP" + compare, "NoEndpoints Service shop/web: shop/web:admin: connections are rejected: none of 1 ready endpoints can be used for this port"}},
		{"slices without ports", web + slice("web", "web-1", strings.Replace(ready, "{name: http, port: 8080}", "", 1)), Options{}, []string{
			"NoSuchPort Service shop/web: EndpointSlice shop/web-1 has no port http/TCP; it has none" + compare, "NoEndpoints Service shop/web: shop/web:http: connections are rejected: none of 1 ready endpoints can be used for this port"}},
		{"external policy Local without a node", svc("web", "clusterIP: 10.96.0.10, type: NodePort, externalTrafficPolicy: Local") + slice("web", "web-1", strings.Replace(ready, ", nodeName: n1", "", 1)), Options{}, nil},
		{"external policy Local of a node port without a node", strings.Replace(svc("web", "clusterIP: 10.96.0.10, type: NodePort, externalTrafficPolicy: Local"), "port: 80", "port: 80, nodePort: 30080", 1) +
			slice("web", "web-1", strings.Replace(ready, ", nodeName: n1", "", 1)), Options{}, []string{
			"NoLocalEndpoints Service shop/web: shop/web:http: connections from outside to a node port are dropped on every node: it has no usable endpoint, and the traffic policy is Local"}},
		{"both policies Local without a node", strings.Replace(svc("web", "clusterIP: 10.96.0.10, type: NodePort, externalTrafficPolicy: Local, internalTrafficPolicy: Local"), "port: 80", "port: 80, nodePort: 30080", 1) +
			slice("web", "web-1", strings.Replace(ready, ", nodeName: n1", "", 1)), Options{}, []string{
			"NoLocalEndpoints Service shop/web: shop/web:http: connections to a cluster IP, and from outside to a node port, are dropped on every node: it has no usable endpoint, and the traffic policy is Local"}},
		{"internal policy Local without a node", svc("web", "clusterIP: 10.96.0.10, internalTrafficPolicy: Local") + slice("web", "web-1", strings.Replace(ready, ", nodeName: n1", "", 1)), Options{}, []string{
			"NoLocalEndpoints Service shop/web: shop/web:http: connections to a cluster IP are dropped on every node: it has no usable endpoint, and the traffic policy is Local"}},
		{"no endpoint is ready", web + slice("web", "web-1", notReady), Options{}, []string{
			"NoEndpoints Service shop/web: shop/web:http: connections are rejected: none of 1 endpoints is ready; see the pods' readiness probes"}},
		{"only terminating endpoints", web + slice("web", "web-1", strings.Replace(ready, "nodeName: n1", "conditions: {ready: false, serving: true, terminating: true}", 1)), Options{}, []string{
			"OnlyTerminatingEndpoints Service shop/web: cluster IP 10.96.0.10:80/TCP: no endpoint is ready; connections go to those that still serve while terminating"}},
		{"endpoints of one family", svc("web", dual) + slice("web", "web-1", ready), Options{}, []string{
			"NoEndpoints Service shop/web: shop/web:http: connections are rejected in IPv6: none of 1 endpoints is IPv6; let the pods have IPv6 addresses, or change spec.ipFamilies"}},
		{"endpoints of the other family", web + slice("web", "web-1", ready6), Options{}, []string{
			"NoEndpoints Service shop/web: shop/web:http: connections are rejected: none of 1 endpoints is IPv4; let the pods have IPv4 addresses, or change spec.ipFamilies",
			"FamilyNotServed Service shop/web: there are IPv6 endpoints, but the Service has no IPv6 cluster IP (spec.ipFamilies)"}},
		{"endpoints of both families", svc("web", dual) + slice("web", "web-1", ready) + slice("web", "web-2", ready6), Options{}, nil},
		{"no slices", web, Options{}, []string{
			"NoEndpoints Service shop/web: shop/web:http: connections are rejected: there is no EndpointSlice with the label kubernetes.io/service-name: web; does spec.selector match any pods?"}},
		{"no selector and no slices", strings.Replace(web, "selector: {app: a}, ", "", 1), Options{}, []string{
			"NoEndpoints Service shop/web: shop/web:http: connections are rejected: there is no EndpointSlice with the label kubernetes.io/service-name: web; does spec.selector match any pods?"}},
		{"scaled to 0", web + slice("web", "web-1", "addressType: IPv4\nports: []\nendpoints: []"), Options{}, []string{
			"NoEndpoints Service shop/web: shop/web:http: connections are rejected: its EndpointSlices have no endpoints; does spec.selector match any pods?"}},
		{"a slice of no Service", slice("gone", "gone-1", ready), Options{}, []string{
			"SliceWithoutService EndpointSlice shop/gone-1: it belongs to Service shop/gone, which does not exist"}},
		{"a slice without the label", strings.Replace(slice("web", "web-1", ready), "kubernetes.io/service-name: web, ", "", 1), Options{}, []string{
			"SliceWithoutService EndpointSlice shop/web-1: metadata.labels: it belongs to no Service; set the label kubernetes.io/service-name"}},
		{"endpoints that must not be", web + slice("web", "web-1", "addressType: IPv4\nports: [{name: http, port: 8080}]\nendpoints: "+
			"[{addresses: [10.244.0.5], nodeName: n1}, {addresses: [127.0.0.1]}, {addresses: [169.254.169.254]}, {addresses: [224.0.0.1]}]"), Options{}, []string{
			"EndpointAddressForbidden EndpointSlice shop/web-1: endpoints[1].addresses[0]: 127.0.0.1 is a loopback, link-local, multicast or unspecified address, which an endpoint must not have",
			"EndpointAddressForbidden EndpointSlice shop/web-1: endpoints[2].addresses[0]: 169.254.169.254 is a loopback, link-local, multicast or unspecified address, which an endpoint must not have",
			"EndpointAddressForbidden EndpointSlice shop/web-1: endpoints[3].addresses[0]: 224.0.0.1 is a loopback, link-local, multicast or unspecified address, which an endpoint must not have"}},
		{"endpoints on addresses of Services", with("clusterIP: 10.96.0.10", "192.0.2.1") + cidr + svc("api", "clusterIP: 10.96.0.11") + slice("api", "api-1",
			"addressType: IPv4\nports: [{name: http, port: 8080}]\nendpoints: [{addresses: [10.96.0.10]}, {addresses: [192.0.2.1]}, {addresses: [10.96.7.7]}]"), Options{}, []string{
			"EndpointOnServiceAddress EndpointSlice shop/api-1: 10.96.0.10 is the cluster IP of shop/web, 192.0.2.1 is a load balancer IP of shop/web, 10.96.7.7 is in a ServiceCIDR"}},
		{"a pod of another namespace", web + slice("web", "web-1", ready) + strings.ReplaceAll(strings.Replace(svc("mine", "clusterIP: 10.96.0.11"), "selector: {app: a}, ", "", 1)+
			strings.Replace(slice("mine", "mine-1", ready), ", endpointslice.kubernetes.io/managed-by: endpointslice-controller.k8s.io", "", 1), "namespace: shop", "namespace: evil"), Options{}, []string{
			"EndpointOfOtherNamespace EndpointSlice evil/mine-1: 10.244.0.5 is an endpoint of namespace shop"}},
		{"a node that is gone", node + web + slice("web", "web-1", strings.ReplaceAll(ready, "n1", "n9")), Options{}, []string{
			"EndpointNodeMissing Node /n9: it does not exist, and is named by 1 endpoint in 1 EndpointSlice (first: shop/web-1)"}},
	}
}

func addressRows() []found {
	web := svc("web", "clusterIP: 10.96.0.10")
	served := Options{Plan: &plan.Options{ServeExternalIPs: true}}
	const local = "clusterIP: 10.96.0.10, externalTrafficPolicy: Local, healthCheckNodePort: 30080"
	return []found{
		{"a Service that is too large", web + slice("web", "web-1", ready), Options{Plan: &plan.Options{Limits: plan.Limits{Elements: 1, Endpoints: 1, SourceRanges: 1}}}, []string{
			"TooLarge Service shop/web: the last 1 of 1 ports are not served: the Service would need too many rules (docs/scale.md); split it"}},
		{"a contested address", with("clusterIP: 10.96.0.10", "192.0.2.1") + strings.ReplaceAll(with("clusterIP: 10.96.0.11", "192.0.2.1"), "web", "zeb"), Options{}, []string{
			"Contested Service shop/zeb: load balancer IP 192.0.2.1:80/TCP is served for shop/web:http, which is as old and whose name sorts first"}},
		{"a contested node port", strings.Replace(svc("web", "type: NodePort, "+dual)+slice("web", "web-1", ready)+slice("web", "web-2", ready6), "port: 80}", "port: 80, nodePort: 30080}", 1) +
			strings.Replace(svc("zeb", "type: NodePort, clusterIP: 10.96.0.11, clusterIPs: [10.96.0.11, 'fd00:96::11']")+slice("zeb", "zeb-1", ready)+slice("zeb", "zeb-2", ready6), "port: 80}", "port: 80, nodePort: 30080}", 1),
			Options{}, []string{"Contested Service shop/zeb: node port 30080/TCP (IPv4) is served for shop/web:http, which is as old and whose name sorts first",
				"Contested Service shop/zeb: node port 30080/TCP (IPv6) is served for shop/web:http, which is as old and whose name sorts first"}},
		{"a shared cluster IP", web + slice("web", "web-1", ready) + svc("zeb", "clusterIP: 10.96.0.10") + slice("zeb", "zeb-1", ready), Options{}, []string{
			"Contested Service shop/zeb: cluster IP 10.96.0.10:80/TCP is served for shop/web:http, which is as old and whose name sorts first",
			"ClusterIPShared Service shop/web: cluster IP 10.96.0.10 is also that of shop/zeb", "ClusterIPShared Service shop/zeb: cluster IP 10.96.0.10 is also that of shop/web"}},
		{"outside the ServiceCIDRs", cidr + svc("web", "clusterIP: 10.97.0.10") + slice("web", "web-1", ready), Options{}, []string{
			"ClusterIPOutsideServiceCIDRs Service shop/web: cluster IP 10.97.0.10 is in none of the ServiceCIDRs 10.96.0.0/16"}},
		{"inside the ServiceCIDRs", cidr + with("clusterIP: 10.96.0.10", "10.96.0.99"), Options{}, []string{
			"AddressInsideServiceCIDRs Service shop/web: load balancer IP 10.96.0.99 is in a ServiceCIDR"}},
		{"a forbidden load balancer IP", with("clusterIP: 10.96.0.10", "127.0.0.1"), Options{}, []string{
			"AddressForbidden Service shop/web: load balancer IP 127.0.0.1 is a loopback, link-local, multicast or unspecified address"}},
		{"a forbidden external IP", svc("web", "clusterIP: 10.96.0.10, externalIPs: [169.254.169.254]") + slice("web", "web-1", ready), served, []string{
			"AddressForbidden Service shop/web: external IP 169.254.169.254 is a loopback, link-local, multicast or unspecified address"}},
		{"external IPs that are not served", svc("web", "clusterIP: 10.96.0.10, externalIPs: [169.254.169.254]") + slice("web", "web-1", ready), Options{}, []string{
			"ExternalIPsNotServed Service shop/web: external IPs (169.254.169.254) are not served because the feature gate AllowServiceExternalIPs is off (docs/external-ips.md)"}},
		{"external IPs that are served", svc("web", "clusterIP: 10.96.0.10, externalIPs: [192.0.2.1]") + slice("web", "web-1", ready), served, nil},
		{"an external IP of a node", node + svc("web", "clusterIP: 10.96.0.10, externalIPs: [172.18.0.2]") + slice("web", "web-1", ready), served, []string{
			"ExternalIPCapture Service shop/web: external IP 172.18.0.2 is an address of node n1: with external IPs served, it draws that traffic"}},
		{"a load balancer IP of the other family", with("clusterIP: 10.96.0.10", "192.0.2.1", "2001:db8::1"), Options{}, []string{
			"FamilyNotServed Service shop/web: load balancer IP 2001:db8::1 is not served: the Service has no IPv6 cluster IP (spec.ipFamilies)"}},
		{"the status of a load balancer on another type", strings.Replace(with("clusterIP: 10.96.0.10", "192.0.2.1"), "type: LoadBalancer, ", "", 1), Options{}, []string{
			"StatusNotServed Service shop/web: 192.0.2.1 is in the status of shop/web, whose type is not LoadBalancer: it is not served"}},
		{"source ranges of one family", with(dual+", loadBalancerSourceRanges: [192.0.2.0/24]", "198.51.100.1", "2001:db8::1") + slice("web", "web-2", ready6), Options{}, []string{
			"SourceRangesOneFamily Service shop/web: loadBalancerSourceRanges has no IPv6 range: 2001:db8::1 is open to everyone"}},
		{"a node port that kubelet uses", strings.Replace(svc("web", "type: NodePort, clusterIP: 10.96.0.10"), "port: 80", "port: 80, nodePort: 10250", 1) + slice("web", "web-1", ready), Options{}, []string{
			"NodePortOutsideRange Service shop/web: node port 10250 is not in 30000-32767: a program on a node may use it"}},
		{"a shared health check port", strings.Replace(with(local, "192.0.2.1"), "port: 80", "port: 80, nodePort: 30080", 1), Options{}, []string{
			"HealthCheckPortShared Service shop/web: health check node port 30080 is also the node port of shop/web"}},
		{"a health check port of two Services", with(local, "192.0.2.1") + strings.ReplaceAll(with(strings.Replace(local, "0.10", "0.11", 1), "192.0.2.2"), "web", "zeb"), Options{}, []string{
			"HealthCheckPortShared Service shop/web: health check node port 30080 is also the health check node port of shop/zeb",
			"HealthCheckPortShared Service shop/zeb: health check node port 30080 is also the health check node port of shop/web"}},
		{"no health check port", with("clusterIP: 10.96.0.10, externalTrafficPolicy: Local", "192.0.2.1"), Options{}, []string{
			"HealthCheckPortMissing Service shop/web: externalTrafficPolicy is Local, and spec.healthCheckNodePort is not set"}},
		{"a request that no controller granted", with("clusterIP: 10.96.0.10, loadBalancerIP: 192.0.2.9"), Options{}, []string{
			"LoadBalancerIPNotAcknowledged Service shop/web: asks for 192.0.2.9, which status does not acknowledge: no traffic to it is served"}},
		{"an unknown algorithm", strings.Replace(svc("web", "clusterIP: 10.96.0.10")+slice("web", "web-1", ready), "metadata: {", "metadata: {annotations: {service.cilium.io/lb-algorithm: wrr}, ", 1),
			Options{Plan: &plan.Options{Balancing: plan.Balancing{On: true}}}, []string{
				`BalancingNotServed Service shop/web: the annotation service.cilium.io/lb-algorithm: "wrr" is not one of random, round-robin, source-hash, maglev (docs/balancing.md)`}},
		{"invalid limits", strings.Replace(svc("web", "clusterIP: 10.96.0.10")+slice("web", "web-1", ready), "metadata: {", "metadata: {annotations: {kube-proxy/connection-limits: open=all}, ", 1),
			Options{Plan: &plan.Options{Fences: plan.Fences{On: true}}}, []string{
				`LimitsNotServed Service shop/web: the annotation kube-proxy/connection-limits: "open=all" is not per-second or client-per-second with = and a number from 1 to 100000, nor open or client-open with one from 1 to 5000 (docs/limits.md)`}},
		{"session affinity of a week", svc("web", "clusterIP: 10.96.0.10, sessionAffinity: ClientIP, sessionAffinityConfig: {clientIP: {timeoutSeconds: 604800}}") + slice("web", "web-1", ready), Options{}, []string{
			"InvalidField Service shop/web: spec.sessionAffinityConfig.clientIP.timeoutSeconds: 604800 is not between 1 and 86400; using 10800"}},
	}
}

func nodeRows() []found {
	return []found{
		{"a node without addresses", strings.Replace(node, "InternalIP", "Hostname", 1), Options{}, []string{
			"NodeWithoutAddress Node /n1: status.addresses has neither an InternalIP nor an ExternalIP"}},
		{"a node without pod CIDRs", strings.Replace(node, "podCIDRs: [10.244.0.0/24]", "", 1), Options{Plan: &plan.Options{NodeCIDR: true}}, []string{
			"NodeWithoutPodCIDR Node /n1: spec.podCIDRs is empty, and detectLocalMode is NodeCIDR: every connection to a cluster IP is masqueraded"}},
		{"a bad pod CIDR", strings.Replace(node, "10.244.0.0/24", "pods", 1), Options{}, []string{`InvalidField Node /n1: spec.podCIDRs[0]: "pods" is not a CIDR`}},
	}
}

// TestFindings has a row for every code of "kube-proxy analyze": the objects, and the findings that they lead to.
func TestFindings(t *testing.T) {
	tested := map[Code]bool{RefusedManifest: true} // by TestDefaults
	for _, test := range slices.Concat(endpointRows(), addressRows(), nodeRows()) {
		if diff := cmp.Diff(test.want, analyze(t, test.options, test.objects)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
		for _, line := range test.want {
			code, _, _ := strings.Cut(line, " ")
			tested[Code(code)] = true
		}
	}
	for _, code := range Codes(Endpoints, Addresses, Nodes) {
		if !tested[code] {
			t.Errorf("no row leads to %s", code)
		}
	}
}

// TestSelection checks that codes, groups and namespaces can be left out.
func TestSelection(t *testing.T) {
	broken := svc("web", "clusterIP: 10.96.0.10, externalIPs: [192.0.2.1]") + strings.Replace(svc("web", "clusterIP: 10.96.0.10"), "shop", "other", 1)
	for _, test := range []struct {
		options Options
		want    string
	}{
		{Options{}, "ExternalIPs shop, NoEndpoints other, Contested shop, ClusterIPShared other, ClusterIPShared shop, ExternalIPsNotServed shop"},
		{Options{Skip: []Code{ClusterIPShared, ExternalIPs}}, "NoEndpoints other, Contested shop, ExternalIPsNotServed shop"},
		{Options{Namespaces: []string{"other"}}, "NoEndpoints other, ClusterIPShared other"},
		{Options{Groups: []Group{Upgrade}}, "ExternalIPs shop"},
		{Options{Groups: []Group{Endpoints}}, "NoEndpoints other"},
	} {
		a := New(test.options)
		if file := read(a, broken); file.Err != nil {
			t.Fatal(file.Err)
		}
		var got []string
		for _, f := range a.Report().Findings {
			got = append(got, fmt.Sprint(f.Code, " ", f.Namespace))
		}
		if diff := cmp.Diff(test.want, strings.Join(got, ", ")); diff != "" {
			t.Errorf("%+v (-want +got):\n%s", test.options, diff)
		}
	}
}

// TestDefinitions checks the table of codes: every code once, with a remedy, and severities that exist.
func TestDefinitions(t *testing.T) {
	seen := map[Code]bool{}
	for _, d := range Definitions() {
		if seen[d.Code] || d.Finds == "" || d.Remedy == "" || len(d.Groups) == 0 || !slices.Contains(Severities(), d.Severity) || strings.ContainsAny(d.Finds+d.Remedy, "|\n") {
			t.Errorf("the definition %+v", d)
		}
		seen[d.Code] = true
	}
	if _, ok := Define("Nothing"); ok {
		t.Error("there is a code Nothing")
	}
	if !Error.AtLeast(Warning) || !Warning.AtLeast(Warning) || Info.AtLeast(Warning) {
		t.Error("severities are not in order")
	}
}

// TestBounds checks the ends of the range of node ports, the number of texts that one message lists, the counts of the report,
// and the first and the last code.
func TestBounds(t *testing.T) {
	for port, want := range map[int]bool{29999: true, 30000: false, 32767: false, 32768: true} {
		text := clusters.Service("shop/web", fmt.Sprintf("type: NodePort, clusterIP: 10.96.0.10, ports: [{name: http, port: 80, nodePort: %d}]", port))
		found := strings.Join(analyze(t, Options{}, node+text+slice("web", "web-1", ready)), "\n")
		if strings.Contains(found, string(NodePortRange)) != want {
			t.Errorf("node port %d is outside of the range: want %t; found\n%s", port, want, found)
		}
	}
	for many, want := range map[int]string{most: "a0, a1, a2, a3, a4", most + 1: "a0, a1, a2, a3, a4 and 1 more"} {
		var texts []string
		for i := range many {
			texts = append(texts, fmt.Sprint("a", i), "a0")
		}
		if got := some(texts); got != want {
			t.Errorf("%d texts: got %q, want %q", many, got, want)
		}
	}
	a := New(Options{})
	if file := read(a, healthy); file.Err != nil {
		t.Fatal(file.Err)
	}
	if r := a.Report(); r.Nodes != 1 || r.EndpointSlices != 4 {
		t.Errorf("the report counts %d Nodes and %d EndpointSlices, want 1 and 4", r.Nodes, r.EndpointSlices)
	}
	all := Definitions()
	for _, want := range []Definition{all[0], all[len(all)-1]} {
		if got, ok := Define(want.Code); !ok || got.Finds != want.Finds {
			t.Errorf("%s is defined as %+v, %t", want.Code, got, ok)
		}
	}
	if got, ok := Define("NoSuchCode"); ok {
		t.Errorf("a code that does not exist is defined as %+v", got)
	}
}
