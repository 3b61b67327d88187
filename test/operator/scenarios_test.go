//go:build linux

package operator

import (
	"strings"

	"github.com/seed-11a05479/kube-proxy/test/clusters"
)

// scenario is something that is broken, and the command that names the cause.
type scenario struct {
	name string
	// objects are the proxy's.
	objects string
	// modes are the proxy modes; nftables by default. flags are the proxy's, beside those of all scenarios. none starts no proxy.
	modes []string
	flags string
	none  bool
	// The proxy finds programs in $DIR/bin alone, if there is such a folder. kubeconfig is a file's name, in place of the objects; unready means that the proxy has no rules in force.
	kubeconfig string
	unready    bool
	// breaks is a script that runs in node1 when the proxy serves, and before one that runs before it starts. If the proxy repairs it,
	// it runs again before each try.
	breaks, before string
	repaired       bool
	// send are the packets, "HOST ADDRESS:PORT[/udp]", that are sent while the command traces.
	send string
	// command is what the operator runs in node1; code is its exit code, and names is in its output, not is not.
	command string
	code    int
	names   []string
	not     string
}

const (
	nftables          = "nftables"
	iptables          = "iptables"
	here, there, dead = "{addresses: [10.244.1.2], nodeName: node1}", "{addresses: [10.244.2.2], nodeName: node2}", "{addresses: [10.244.2.77], nodeName: node2}"
)

var both = []string{nftables, iptables}

// web is the Service default/web with a port 80, the given fields and endpoints, whose port is 8080.
func web(spec string, endpoints ...string) string {
	return service("default/web", "clusterIP: 10.96.0.10, ports: [{name: http, port: 80}]"+spec, endpoints...)
}

// nodePort is the same with a node port.
func nodePort(endpoints ...string) string {
	return strings.Replace(web(", type: NodePort", endpoints...), "port: 80}", "port: 80, nodePort: 30080}", 1)
}

func service(name, spec string, endpoints ...string) string {
	status := ""
	if strings.Contains(spec, "LoadBalancer") {
		status = "status: {loadBalancer: {ingress: [{ip: 192.0.2.10}]}}\n"
	}
	if len(endpoints) == 0 {
		return clusters.Service(name, spec) + status
	}
	return clusters.Service(name, spec) + status + clusters.Slice(name, strings.ReplaceAll(name, "/", "-"), "{name: http, port: 8080}", endpoints...)
}

// local is a load balancer's Service whose external policy is Local.
func local(more string, endpoints ...string) string {
	return web(", type: LoadBalancer, externalTrafficPolicy: Local"+more, endpoints...)
}

// stray is a Service of type ClusterIP with the status of a load balancer.
var stray = clusters.Service("default/lb", "type: ClusterIP, clusterIP: 10.96.0.11, ports: [{name: http, port: 80}]") +
	"status: {loadBalancer: {ingress: [{ip: 192.0.2.33}]}}\n" + clusters.Slice("default/lb", "lb-1", "{name: http, port: 8080}", there)

// ownedBefore makes the table of IPv4 that of another process, before the proxy starts.
const ownedBefore = "setsid sh -c \"{ printf 'add table ip kube-proxy { flags owner; }\\n'; sleep 120; } | nft -i\" > /dev/null 2>&1 & await 'nft list table ip kube-proxy'"

// owned makes the table of IPv4 that of another process, which lives a while.
const owned = "setsid sh -c \"{ printf 'delete table ip kube-proxy; add table ip kube-proxy { flags owner; }\\n'; sleep 120; } | nft -i\" > /dev/null 2>&1 & await \"curl -s 127.0.0.1:10249/api/v1alpha1/info | grep -q '\\\"error\\\"'\"; "

// manifest writes a manifest with a source range that is none.
const manifest = "printf 'apiVersion: v1\nkind: Service\nmetadata: {name: bad, namespace: default}\nspec: {clusterIP: 10.96.0.99, type: LoadBalancer, ports: [{port: 80}], loadBalancerSourceRanges: [x]}\n' > $DIR/objects/bad.yaml"

// dual is a Service of both families with an endpoint in each.
const dual = `---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: default}
spec: {clusterIPs: [10.96.0.10, "fd00:10:96::10"], ipFamilies: [IPv4, IPv6], ports: [{name: http, port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-6, namespace: default, labels: {kubernetes.io/service-name: web}}
addressType: IPv6
ports: [{name: http, port: 8080}]
endpoints: [{addresses: ["fd00:10:244:2::2"]}]
`

// found are the scenarios that an operator met.
func found() []scenario {
	return []scenario{
		{name: "the targetPort is wrong", objects: web("", there) + "---\n" + service("default/closed", "clusterIP: 10.96.0.11, ports: [{name: http, port: 80}]") +
			clusters.Slice("default/closed", "closed-1", "{name: http, port: 9999}", there),
			command: "explain default/closed --try 4", code: 5, names: []string{"No endpoint answers", "10.244.2.2:9999", "4 refused", "targetPort"}},
		{name: "no endpoint is ready", objects: web("", "{addresses: [10.244.2.2], conditions: {ready: false}}"),
			command: "service describe web", names: []string{"NoEndpoints", "none of 1 endpoints is ready", "readiness probes"}},
		{name: "a local policy without local endpoints", objects: local("", there), modes: both, send: "client 192.0.2.10:80",
			command: "trace default/web", code: 3, names: []string{"dropped by table", "no usable endpoint on this node"}},
		{name: "an internal local policy without local endpoints", objects: web(", internalTrafficPolicy: Local", there),
			command: "service list", names: []string{"NoLocalEndpoints"}},
		{name: "a firewall that accepts by its policy and drops", objects: web("", there), modes: both, send: "pod1a 10.96.0.10:80",
			breaks:  `nft 'table inet corpfw { chain cfwd { type filter hook forward priority 0; policy accept; tcp dport 8080 drop comment "ticket 4711"; }; }'`,
			command: "trace default/web", code: 3, names: []string{"dropped by table inet corpfw, chain cfwd (ticket 4711), which is not kube-proxy's"}},
		{name: "the same firewall, for a script", objects: web("", there), send: "pod1a 10.96.0.10:80",
			breaks:  `nft 'table inet corpfw { chain cfwd { type filter hook forward priority 0; policy accept; tcp dport 8080 drop comment "ticket 4711"; }; }'`,
			command: "trace default/web -o yaml", code: 3, names: []string{"--- apiVersion: serviceproxy/v1alpha1", "verdict: Dropped", "table: corpfw"}},
		{name: "the fields of a configuration", none: true, command: "config explain", names: []string{"FIELDS:", "nodePortAddresses"}},
		{name: "a stale connection tracking entry", objects: web("", there) + service("default/dns", "clusterIP: 10.96.0.53, ports: [{name: dns, protocol: UDP, port: 53}]") +
			clusters.Slice("default/dns", "dns-1", "{name: dns, protocol: UDP, port: 8080}", there), modes: both, send: "pod1a 10.96.0.53:53/udp",
			breaks:  `await "curl -s 127.0.0.1:10249/metrics | grep -q '^kubeproxy_conntrack_reconciler_sync_duration_seconds_count.*IPv4.* [1-9]'"; conntrack -I -s 10.244.1.2 -d 10.96.0.53 -p udp --sport 40000 --dport 53 --dst-nat 10.244.2.99:8080 --timeout 120`,
			command: "trace default/dns", code: 3, names: []string{"10.244.2.99:8080", "was no endpoint of default/dns when the trace began", "stale connection tracking entry", "conntrack -D"}},
		{name: "a node port on an excluded address", objects: nodePort(there),
			command: "explain --from external --to 10.244.1.1:30080", code: 4,
			names: []string{"port 30080/TCP is the node port of default/web:http", "10.244.1.1 is none of the node port addresses of this node (172.18.0.11", "nodePortAddresses"}},
		{name: "the addresses that answer node ports", objects: nodePort(there), command: "service describe web",
			names: []string{"Node ports on: 172.18.0.11 Traffic policy", "node:30080 (IPv4)"}},
		{name: "what the node's address serves", objects: nodePort(there) + stray, command: "service list --address 172.18.0.11 --no-headers", names: []string{"default web 10.96.0.10 80:30080/TCP"}, not: "10.96.0.11"},
		{name: "a node port on localhost", objects: nodePort(there), command: "explain --to 127.0.0.1:30080", code: 4,
			names: []string{"port 30080/TCP is the node port of default/web:http", "nodePortAddresses"}},
		{name: "another proxy runs", objects: web("", there), breaks: "timeout 10 $PROXY --manifests $DIR/objects --proxy-mode iptables --hostname-override node1 --metrics-bind-address 127.0.0.1:10250 --healthz-bind-address 127.0.0.1:10257 > /dev/null 2>&1 &",
			command: "check --proxy-mode nftables --skip api,kernel,tools,firewall,settings", names: []string{"several kube-proxies run: processes", "Stop all but one"}},
		{name: "rules of an earlier proxy come back", objects: web("", there), repaired: true,
			breaks:  "for chain in KUBE-SERVICES KUBE-SVC-0123456789ABCDEF; do iptables -w -t nat -N $chain 2> /dev/null || true; done",
			command: "check --proxy-mode nftables --skip api,kernel,tools,firewall,settings", names: []string{"rules of mode iptables are present beside those of mode nftables"}},
		{name: "two Services claim an external IP", objects: web(`, externalIPs: ["192.0.2.55"]`, there) + service("default/also", `clusterIP: 10.96.0.11, ports: [{name: http, port: 80}], externalIPs: ["192.0.2.55"]`, there),
			flags: "--feature-gates AllowServiceExternalIPs=true", command: "explain --from external --to 192.0.2.55:80",
			names: []string{"192.0.2.55:80/TCP is an external IP of default/", "claims it too"}},
		{name: "a load balancer's status on a ClusterIP", objects: web("", there) + stray, command: "explain --from external --to 192.0.2.33:80", code: 4,
			names: []string{"192.0.2.33 is in the status of default/lb", "type is not LoadBalancer"}},
		{name: "endpoints of another IP family", objects: service("default/web", "clusterIP: 10.96.0.10, ports: [{name: http, port: 80}]") + dual[strings.Index(dual[3:], "---")+3:],
			command: "service describe web", names: []string{"FamilyNotServed", "IPv6"}},
		{name: "the API server forbids", kubeconfig: "forbidden", unready: true, command: "service list -A", code: 1,
			names: []string{"no sync has succeeded yet", "the API server to list services (forbidden)"}, not: "No Services"},
		{name: "the API server is unreachable", kubeconfig: "unreachable", unready: true, command: "explain --to 10.96.0.10:80", code: 1,
			names: []string{"no sync has succeeded yet", "(unreachable)"}},
		{name: "a configuration with a wrong field", none: true, before: "printf 'apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nmode: ipvs\nclusterCIDRs: x\n' > $DIR/config",
			command: "config validate $DIR/config", code: 1, names: []string{"config:3", "ipvs", "config:4", "clusterCIDRs"}},
		{name: "the health check node port is in use", objects: local(", healthCheckNodePort: 32443", here),
			command: "service list", names: []string{"HealthCheckNotServed"}},
		{name: "the proxy hangs", objects: web("", there), breaks: "kill -STOP $(cat $DIR/pid)", command: "service list --request-timeout 300ms", code: 1,
			names: []string{"the proxy at http://127.0.0.1:10249 does not answer", "kube-proxy check"}},
		{name: "the proxy hangs, for drift", objects: web("", there), breaks: "kill -STOP $(cat $DIR/pid)", command: "drift --request-timeout 300ms", code: 1,
			names: []string{"the proxy at http://127.0.0.1:10249 does not answer"}},
		{name: "the proxy hangs, for check", objects: web("", there), breaks: "kill -STOP $(cat $DIR/pid)", command: "check --skip api,kernel,tools,firewall,settings", code: 1,
			names: []string{"fail proxies/lock kube-proxy holds this network namespace (it does not answer)", "ok proxies/modes no rules of another proxy mode", "ok proxy/rules rules of mode nftables"}, not: "iptables"},
		{name: "another program flushes the rules", objects: web("", there), modes: both, breaks: "nft flush ruleset", command: "drift", names: []string{"nft (process"}},
		{name: "the cluster CIDR is wrong", objects: web("", here), flags: "--cluster-cidr 10.24.0.0/16", command: "explain --from 10.244.1.2 --to default/web",
			names: []string{"10.244.1.2 is neither this node nor local traffic: it is not in 10.24.0.0/16, and no endpoint on this node is: is clusterCIDRs right?"}},
		{name: "the cluster CIDR is wrong, for check", objects: web("", here), flags: "--cluster-cidr 10.24.0.0/16", command: "check --proxy-mode nftables --skip api,kernel,tools,firewall,settings",
			names: []string{"NoEndpointInClusterCIDR: no endpoint on this node is in 10.24.0.0/16", "--cluster-cidr"}},
		{name: "a manifest is invalid", objects: web("", here), breaks: manifest, command: "service list",
			names: []string{"Warning: InvalidManifest: ", "/objects/bad.yaml:", "loadBalancerSourceRanges", "web 10.96.0.10"}},
		{name: "where the Service of an invalid manifest is", objects: web("", here), breaks: manifest + "; await \"curl -s 127.0.0.1:10249/metrics | grep -q '^serviceproxy_invalid_manifests 1'\"", command: "service describe bad", code: 1,
			names: []string{"Service default/bad is not served", "InvalidManifest: ", "/objects/bad.yaml:", "loadBalancerSourceRanges"}},
		{name: "the configuration becomes invalid", objects: web("", here), flags: "--config $DIR/config",
			before: "printf 'apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nmode: nftables\nbindAddress: 172.18.0.11\nconntrack: {maxPerCore: 0}\n' > $DIR/config",
			breaks: "sed -i s/nftables/ipvs/ $DIR/config; await 'curl -s 127.0.0.1:10249/api/v1alpha1/info | grep -q InvalidConfiguration'", command: "check --config $DIR/config --skip api,kernel,tools,firewall,settings", code: 1,
			names: []string{"fail config/file", "warn proxy/inputs InvalidConfiguration: ", "config:3", "ipvs"}},
		{name: "a bridge port without hairpin mode", objects: web("", here), modes: both, send: "pod1a 10.96.0.10:80", breaks: "bridge link set dev vethpod1a hairpin off",
			command: "trace default/web", code: 3, names: []string{"the endpoint is the source itself", "vethpod1a", "hairpin mode is off", "bridge link set dev vethpod1a hairpin on"}, not: "rp_filter"},
		{name: "another process owns the table", objects: web("", there), unready: true, before: ownedBefore,
			command: "service list -A", code: 1, names: []string{"IPv4: the last sync failed"}},
		{name: "a Service is new while another process owns the table", objects: dual, breaks: owned + "printf %s '" + strings.ReplaceAll(strings.ReplaceAll(dual, "web", "also"), "96::10", "96::11") + "' | sed s/10.96.0.10/10.96.0.11/ > $DIR/objects/also.yaml",
			command: "service describe also", code: 1, names: []string{"fd00:10:96::11", "IPv4: the last sync failed"}, not: "does not exist"},
		{name: "an explanation while another process owns the table", objects: web("", there), unready: true, before: ownedBefore, command: "explain default/web", code: 1,
			names: []string{"no rules of this proxy are in force in IPv4", "another process owns the table"}},
		{name: "rules while another process owns the table", objects: dual, breaks: owned, command: "render", code: 1, names: []string{"# IPv6 table ip6 kube-proxy", "IPv4: the last sync failed: nftables: "}},
	}
}

// others are the scenarios that tests thought of.
func others() []scenario {
	return []scenario{
		{name: "a file of a manifest does not answer when the proxy starts", objects: web("", there), unready: true, before: "ln -s /proc/kmsg $DIR/objects/kernel.yaml",
			command: "service list", code: 1, names: []string{"no sync has succeeded yet", "waiting for: the files with manifests"}, not: "Node object"},
		{name: "an explanation while another process owns a table of iptables", objects: dual, modes: []string{iptables}, breaks: strings.ReplaceAll(owned, "ip kube-proxy", "ip6 nat"),
			command: "explain --from external --to [fd00:10:96::10]:80", code: 1, names: []string{"IPv6: the last sync failed", "another process owns the table"}},
		{name: "ip6tables is missing", objects: dual, modes: []string{iptables},
			before:  "mkdir $DIR/bin; for tool in iptables iptables-save iptables-restore iptables-nft iptables-nft-save iptables-nft-restore; do ln -s $(command -v $tool) $DIR/bin; done",
			command: "service list", names: []string{"Warning: FamilyNotServed: IPv6 is not served, and tried again: ", "ip6tables is not in PATH"}},
		{name: "IPv6 is disabled", objects: dual, modes: both, before: "sysctl -qw net.ipv6.conf.all.disable_ipv6=1",
			command: "explain --from external --to [fd00:10:96::10]:80", code: 4, names: []string{"IPv6 is not served on this node"}},
		{name: "no route to the endpoint", objects: web("", there), modes: both, send: "pod1a 10.96.0.10:80", breaks: "ip route del 10.244.2.0/24; ip route del default",
			command: "trace default/web", code: 3, names: []string{"no route to 10.244.2.2"}, not: "rp_filter"},
		{name: "forwarding is off", objects: web("", there), modes: both, send: "pod1a 10.96.0.10:80", breaks: "sysctl -qw net.ipv4.ip_forward=0",
			command: "trace default/web", code: 3, names: []string{"forwarding is off", "net.ipv4"}, not: "rp_filter"},
		{name: "the source is checked", objects: nodePort(there), send: "client 172.18.0.11:30080", breaks: "bash -c 'echo > /dev/udp/172.18.0.100/9'; await 'ip neigh show 172.18.0.100 | grep -q lladdr'; sysctl -qw net.ipv4.conf.all.rp_filter=1; ip route add 172.18.0.100/32 dev cbr0",
			command: "trace default/web", code: 3, names: []string{"rp_filter"}, not: "hairpin"},
		{name: "an endpoint that does not exist is traced", objects: web("", dead), send: "pod1a 10.96.0.10:80", command: "trace default/web",
			names: []string{"sent to 10.244.2.77:8080", "Delivered here, or sent on: 1 packet."}, not: "arrived"},
		{name: "the forward policy drops", objects: web("", there), modes: both, send: "pod1a 10.96.0.10:80", breaks: "iptables -P FORWARD DROP",
			command: "trace default/web", code: 3, names: []string{"dropped by table ip filter, chain FORWARD (its policy), which is not kube-proxy's"}},
		{name: "whose an address in the status of a ClusterIP is", objects: web("", there) + stray, command: "service list --address 192.0.2.33", names: []string{"StatusNotServed"}},
		{name: "why a load balancer IP is not served", objects: web("", there) + stray, command: "service describe lb",
			names: []string{"StatusNotServed 192.0.2.33 is in the status of default/lb, whose type is not LoadBalancer: it is not served"}},
		{name: "what a cluster's objects have in their status", none: true, objects: web("", there) + stray, command: "analyze --manifests $DIR/objects", code: 1,
			names: []string{"StatusNotServed", "192.0.2.33"}},
		{name: "one endpoint is dead", objects: web("", there, "{addresses: [10.244.1.3], nodeName: node1}"), modes: both, command: "explain default/web --try 20", code: 5,
			names: []string{"10.244.1.3:8080", "refused", "10.244.2.2:8080", "answered"}},
		{name: "one endpoint is dead, for a script", objects: web("", there, "{addresses: [10.244.1.3], nodeName: node1}"), command: "explain default/web --try 20 -o json", code: 5,
			names: []string{`"succeeds": false`, `"address": "10.244.1.3:8080", "connections": `, `"result": "refused"`, `"conclusion": "1 of 2 endpoints do not answer`}, not: "Tried"},
		{name: "no IPv6 route", objects: dual, breaks: "ip -6 route flush default; ip -6 route flush fd00:10:244:2::/64", command: "explain --to '[fd00:10:96::10]:80' --try 2", code: 5,
			names: []string{"this node has no route to fd00:10:96::10", "ip -6 route get fd00:10:96::10"}, not: "other rules may interfere"},
		{name: "a port that the Service does not have", objects: web("", there), send: "pod1a 10.96.0.10:8080", command: "trace 10.96.0.10:8080", code: 3,
			names: []string{"rejected by table", "10.96.0.10 is the cluster IP of default/web, which has no port 8080/TCP"}},
		{name: "the wrong port of a load balancer IP", objects: local("", here), command: "explain --from external --to 192.0.2.10:81", code: 4,
			names: []string{"192.0.2.10 is a load balancer IP of default/web, which has no port 81/TCP there; it has 80/TCP"}},
		{name: "the client is in no source range", objects: local(", loadBalancerSourceRanges: [198.51.100.0/24]", here), modes: both, send: "client 192.0.2.10:80",
			command: "trace default/web", code: 3, names: []string{"dropped by table", "source ranges"}},
		{name: "the port's name is misspelt", objects: service("default/web", "clusterIP: 10.96.0.10, ports: [{name: htpp, port: 80}]", there),
			command: "explain default/web", code: 3, names: []string{"NoSuchPort", "EndpointSlice default/default-web has no port htpp"}},
		{name: "the Service's name is misspelt", objects: web("", there), command: "trace default/wbe", code: 1, names: []string{"did you mean default/web?"}},
		{name: "no proxy runs", none: true, command: "service list", code: 1, names: []string{"no kube-proxy answers at http://127.0.0.1:10249"}},
		{name: "the kubeconfig's server is unreachable", none: true, command: "service list -A --node node1 --kubeconfig $DIR/unreachable", code: 1,
			names: []string{"the API server at http://127.0.0.1:6444 is unreachable"}},
		{name: "which version a command is", none: true, command: "service list --version", names: []string{"Kubernetes v"}},
		{name: "an endpoint is traced that a Service's clients reach", objects: web("", there), command: "trace 10.244.2.2:8080 --duration 100ms", code: 4,
			names: []string{"No packet was seen", "connections through a Service are traced with its name"}},
		{name: "a URL", objects: web("", there), modes: both, command: "explain http://web.default.svc.cluster.local/healthz", names: []string{"10.96.0.10:80/TCP is a cluster IP of default/web:http", "10.244.2.2:8080"}},
		{name: "a cluster IP without a port", objects: web("", there), command: "explain 10.96.0.10", names: []string{"10.96.0.10 has this port only: 80/TCP", "cluster IP of default/web:http"}},
		{name: "the wrong namespace", objects: web("", there), command: "service list -n shop", names: []string{"No Services found in namespace shop", "1 in others: -A"}},
	}
}
