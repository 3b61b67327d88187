package findings

import "github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"

func upgradeDefinitions() []Definition {
	return []Definition{
		{ExternalIPs, Warning, []Group{Upgrade},
			"A Service has spec.externalIPs, which are not served without the feature gate AllowServiceExternalIPs.",
			"Use a Service of type LoadBalancer, as the manifests of -o manifests do, and set the feature gate until then; see docs/external-ips.md."},
		{ExternalIPCapture, Error, []Group{Upgrade, Addresses},
			"An external IP is the address of a node or another Service's cluster IP; if it is served, this Service receives their traffic.",
			"Find out who wrote the Service."},
		{LoadBalancerIP, Warning, []Group{Upgrade, Addresses},
			"spec.loadBalancerIP, which is deprecated, is not in the Service's status: only the status is served.",
			"See whether the load balancer controller runs and may give that address, or remove the field."},
		{NodePorts, Warning, []Group{Upgrade},
			"After a change of the proxy mode, other addresses of the nodes serve the node ports.",
			"Before the change, let clients use the node's primary address, or write nodePortAddresses: [all] (v1alpha1: [0.0.0.0/0, \"::/0\"]) or the " +
				"ranges that they use. On localhost, nftables mode serves TCP with [primary, localhost] and the feature gate " +
				"KubeProxyNFTablesLocalhostNodePorts."},
		{NodeKubeProxyVersion, Info, []Group{Upgrade},
			"A Node has the deprecated status.nodeInfo.kubeProxyVersion, which is kubelet's version, not the proxy's.",
			"Read the proxy's metric kubernetes_build_info instead; kubelet's feature gate DisableNodeKubeProxyVersion removes the field."},
		{Configuration, Warning, []Group{Upgrade},
			"A setting of a configuration file is deprecated or not supported.",
			"See \"kube-proxy config explain FIELD\", and write the latest version with \"kube-proxy config convert\"."},
		{LostSetting, Warning, []Group{Upgrade},
			"A setting of ipvs mode has no effect in the new mode. Info if that makes no difference for most users.",
			"Write what the message names instead, if clients rely on it."},
		{NodeKernel, Warning, []Group{Upgrade},
			"After a change of the proxy mode, a Node's kernel is older than the new mode needs.",
			"Try it there: kube-proxy check --pre --proxy-mode MODE; distributions backport what is needed. Update the kernel, or keep the mode."},
	}
}

func endpointDefinitions() []Definition {
	return []Definition{
		{plan.ProblemNoSuchPort, Error, []Group{Endpoints},
			"An EndpointSlice with endpoints lacks a port of its Service, by name and protocol.",
			"If targetPort is a name, compare it with the pods' containers[].ports[].name. In slices of another controller (label " +
				"endpointslice.kubernetes.io/managed-by) the port needs the name that it has in the Service."},
		{plan.ProblemNoEndpoints, Warning, []Group{Endpoints},
			"No endpoint can be used, in one IP family at least: connections are rejected. Info if the slices are empty, as after scaling to 0.",
			"Do what the message says. Without a selector, write EndpointSlices (kind Endpoints is not read). publishNotReadyAddresses uses endpoints " +
				"that are not ready, ipFamilyPolicy SingleStack drops a family."},
		{plan.ProblemNoLocalEndpoints, Error, []Group{Endpoints},
			"A traffic policy is Local, and no usable endpoint names a node: every node drops the traffic.",
			"Set nodeName of the endpoints, or the traffic policy Cluster, which endpoints outside the cluster need."},
		{OnlyTerminating, Warning, []Group{Endpoints},
			"No endpoint is ready: connections go to terminating ones while they last.",
			"See why no new pod becomes ready: kubectl rollout status, kubectl get pods."},
		{SliceWithoutService, Warning, []Group{Endpoints},
			"An EndpointSlice has no Service, or one that does not exist: nothing reads it.",
			"Set the label kubernetes.io/service-name to a Service of its namespace, or delete the slice."},
		{EndpointAddress, Error, []Group{Endpoints},
			"An endpoint is a loopback, link-local, multicast or unspecified address, or not of the slice's addressType: it is not used.",
			"Find out who wrote the slice: such an endpoint would send traffic to the node itself (CVE-2021-25737)."},
		{EndpointOnService, Error, []Group{Endpoints},
			"An endpoint is a Service's address, or in a ServiceCIDR: packets never arrive, because they are translated only once.",
			"Use the endpoints of that Service, or an ExternalName."},
		{EndpointOfOther, Warning, []Group{Endpoints},
			"A slice that no controller of Kubernetes manages sends traffic to a pod of another namespace, past network policies for clients (CVE-2021-25740).",
			"Find out who wrote the slice, and who needs the right to write EndpointSlices."},
		{EndpointNode, Warning, []Group{Endpoints},
			"Endpoints name a Node that does not exist: no proxy treats them as local.",
			"See why they outlive the node: kube-controller-manager deletes the pods of nodes that are gone."},
	}
}

func addressDefinitions() []Definition {
	return []Definition{
		{plan.ProblemContested, Error, []Group{Addresses},
			"Several Services claim an address, port and protocol: one is served, in the order cluster IP, load balancer IP, external IP, then by age.",
			"Give the others another address or port."},
		{ClusterIPShared, Error, []Group{Addresses},
			"Two Services have the same cluster IP, as after restoring a backup, or from API servers with different --service-cluster-ip-range.",
			"Delete one of them and create it again."},
		{OutsideServiceCIDRs, Warning, []Group{Addresses},
			"A cluster IP is in no ServiceCIDR: it may be allocated again, or belong to another network.",
			"Create a ServiceCIDR with the range, or delete the Service and create it again."},
		{InsideServiceCIDRs, Error, []Group{Addresses},
			"A load balancer IP or external IP is in a ServiceCIDR: a Service may get it as its cluster IP.",
			"Take an address from another range, and find out who wrote this one."},
		{AddressForbidden, Error, []Group{Addresses},
			"A load balancer IP or external IP is a loopback, link-local, multicast or unspecified address.",
			"Find out who wrote it: such addresses can capture traffic that nodes send to themselves (CVE-2020-8554)."},
		{plan.ProblemExternalIPsNotServed, Warning, []Group{Addresses},
			"External IPs are not served, because the feature gate AllowServiceExternalIPs is off.",
			"Apply what \"kube-proxy audit -o manifests\" prints instead; see docs/external-ips.md."},
		{plan.ProblemFamilyNotServed, Warning, []Group{Endpoints, Addresses},
			"Endpoints or addresses are not served: the Service has no cluster IP of their IP family that this node serves.",
			"Set ipFamilyPolicy to PreferDualStack, or let the controller give an address of the Service's family."},
		{plan.ProblemStatusNotServed, Warning, []Group{Upgrade, Addresses},
			"An address is in status.loadBalancer of a Service whose type is not LoadBalancer. It is not served.",
			"Set the type to LoadBalancer, or find out which controller wrote or left it."},
		{plan.ProblemTooLarge, Error, []Group{Addresses},
			"A Service's last ports are not served: all its ports, addresses and endpoints would need too many rules.",
			"Use several Services with fewer ports each; see docs/scale.md."},
		{plan.ProblemBalancing, Warning, []Group{Addresses},
			"Connections to a Service are not balanced as its annotations, or those of its EndpointSlices, require.",
			"Correct the annotation, or use nftables mode; see docs/balancing.md."},
		{plan.ProblemFence, Warning, []Group{Addresses},
			"Connections to a Service are not limited as its annotation requires. If it is invalid, the limits of the namespace apply.",
			"Correct the annotation, or load the kernel modules that docs/limits.md names."},
		{SourceRanges, Warning, []Group{Addresses},
			"The Service has load balancer IPs of both IP families and loadBalancerSourceRanges of one: the other is open to everyone.",
			"Add a range of the other family, such as ::1/128 to allow no client."},
		{NodePortRange, Warning, []Group{Addresses},
			"A node port or health check node port is outside the default range 30000-32767: a program on the node may need it.",
			"Let the API server choose the port; skip this code if the cluster has another --service-node-port-range."},
		{HealthCheckShared, Error, []Group{Addresses},
			"A health check node port is also another Service's, or a node port: load balancers get the wrong answer.",
			"Delete one of the Services and create it again."},
		{HealthCheckMissing, Warning, []Group{Addresses},
			"A Service with load balancer IPs and external traffic policy Local has no health check node port to show load balancers which nodes have endpoints.",
			"Unless the load balancer needs none, delete the Service and create it again."},
		{InvalidField, Error, []Group{Addresses, Endpoints, Nodes},
			"A field has a value that API servers now reject: the proxy ignores it or uses a default, and with --manifests refuses the object.",
			"Correct the field."},
		{RefusedManifest, Info, []Group{Addresses, Endpoints, Nodes},
			"A proxy that reads this manifest (--manifests) refuses the object: it has an unknown field, or lacks what an API server would set.",
			"If a proxy reads the manifest, correct it. Without a cluster IP, a Service has no findings of other codes."},
	}
}

func nodeDefinitions() []Definition {
	return []Definition{
		{NodeWithoutAddress, Warning, []Group{Nodes},
			"A Node has neither an InternalIP nor an ExternalIP: its proxy does not know the primary address.",
			"See whether kubelet and the cloud controller manager run, or set nodeIPOverride (--bind-address)."},
		{NodeWithoutPodCIDR, Warning, []Group{Nodes},
			"detectLocalMode is NodeCIDR and a Node has no spec.podCIDRs: its proxy masquerades all connections to cluster IPs.",
			"Let kube-controller-manager allocate the ranges (--allocate-node-cidrs), or set another detectLocalMode."},
	}
}
