package findings

func upgradeDefinitions() []Definition {
	return []Definition{
		{ExternalIPs, Warning, []Group{Upgrade},
			"A Service has spec.externalIPs, which are not served without the feature gate AllowServiceExternalIPs.",
			"Let a controller acknowledge an address: use a Service of type LoadBalancer, a Gateway or an Ingress. -o manifests prints " +
				"manifests. Until they are applied, the feature gate AllowServiceExternalIPs serves external IPs. See docs/external-ips.md."},
		{ExternalIPCapture, Error, []Group{Upgrade, Addresses},
			"An external IP is the address of a node, or the cluster IP of another Service: while external IPs are served, the Service receives its traffic.",
			"Find out who wrote the Service: it can receive traffic that is meant for others."},
		{LoadBalancerIP, Warning, []Group{Upgrade, Addresses},
			"A Service asks for spec.loadBalancerIP, and no controller acknowledged it in status.",
			"spec.loadBalancerIP is a request, and deprecated; only what status.loadBalancer.ingress acknowledges is served. " +
				"See whether the controller for load balancers runs and may give that address, or remove the field."},
		{NodePorts, Warning, []Group{Upgrade},
			"A change of the proxy mode moves node ports to other addresses of the nodes.",
			"Before a change of mode, let clients use the node's primary address, or list the wanted addresses in nodePortAddresses."},
		{NodeKubeProxyVersion, Info, []Group{Upgrade},
			"A Node reports status.nodeInfo.kubeProxyVersion, which is deprecated and is kubelet's version.",
			"The kubelet sets the field and does not know the proxy's version. Use the metric kubernetes_build_info of the proxy " +
				"instead. The kubelet leaves the field unset with the feature gate DisableNodeKubeProxyVersion."},
		{Configuration, Warning, []Group{Upgrade},
			"A setting of a configuration file is deprecated or not supported.",
			"\"kube-proxy config convert\" writes the file in the latest version; \"kube-proxy config explain\" describes each field."},
	}
}

func endpointDefinitions() []Definition {
	return []Definition{
		{NoSuchPort, Error, []Group{Endpoints},
			"An EndpointSlice of a Service has endpoints and does not have one of the Service's ports, by name and protocol.",
			"If targetPort is a name, compare it with the pods' containers[].ports[].name. If a controller writes the slices, give the port the name that the Service has: see who wrote the slice (label endpointslice.kubernetes.io/managed-by)."},
		{NoEndpoints, Warning, []Group{Endpoints},
			"No endpoint of a Service can be used, at least in one IP family: connections are rejected. The message says why. The severity is info if its EndpointSlices are empty, as those of a workload that is scaled to 0.",
			"No EndpointSlice: see whether kube-controller-manager runs, or write one if the Service has no selector; objects of kind Endpoints are not read. " +
				"No endpoint: compare spec.selector with the labels of the pods. None is ready: see the pods' readiness probes, or set publishNotReadyAddresses. " +
				"None of a family: let the pods have addresses of both families, or set ipFamilyPolicy to SingleStack."},
		{NoLocalEndpoints, Error, []Group{Endpoints},
			"A traffic policy is Local, there are usable endpoints, and none of them names a node: every node drops the traffic.",
			"Set nodeName of the endpoints, or use the traffic policy Cluster. Endpoints outside the cluster never are on a node."},
		{OnlyTerminating, Warning, []Group{Endpoints},
			"No endpoint is ready. Connections go to endpoints that terminate, until these end.",
			"See why no new pod becomes ready: kubectl rollout status, kubectl get pods."},
		{SliceWithoutService, Warning, []Group{Endpoints},
			"An EndpointSlice belongs to no Service, or to one that does not exist: nothing reads it.",
			"Set the label kubernetes.io/service-name to a Service of the same namespace, or delete the slice."},
		{EndpointAddress, Error, []Group{Endpoints},
			"An endpoint is a loopback, link-local, multicast or unspecified address, or not of the slice's addressType. It is not used.",
			"Find out who wrote the slice: such an endpoint would send traffic to the node itself (CVE-2021-25737)."},
		{EndpointOnService, Error, []Group{Endpoints},
			"An endpoint is the address of a Service, or in a range of Service addresses. A packet is translated once, so it never arrives.",
			"Name the endpoints of that Service instead, or use an ExternalName."},
		{EndpointOfOther, Warning, []Group{Endpoints},
			"A slice that no controller of Kubernetes manages sends traffic to a pod of another namespace, past the network policies that apply to clients there (CVE-2021-25740).",
			"Find out who wrote the slice. Take the right to write EndpointSlices from users who do not need it."},
		{EndpointNode, Warning, []Group{Endpoints},
			"Endpoints name a Node that does not exist. No proxy treats them as local.",
			"If the node was deleted, see why the pods' endpoints stay: kube-controller-manager deletes pods of nodes that are gone."},
	}
}

func addressDefinitions() []Definition {
	return []Definition{
		{Contested, Error, []Group{Addresses},
			"Two Services claim the same address, port and protocol. One of them is served.",
			"Give one of the Services another address or port. A cluster IP is served before a load balancer IP, that before an external IP; then the older Service."},
		{ClusterIPShared, Error, []Group{Addresses},
			"Two Services have the same cluster IP.",
			"Delete and create one of them again. Two API servers with different --service-cluster-ip-range, or a restored backup, lead to this."},
		{OutsideServiceCIDRs, Warning, []Group{Addresses},
			"A cluster IP is in none of the ServiceCIDRs: it may be allocated again, or belong to another network.",
			"Create a ServiceCIDR with the range, or create the Service again."},
		{InsideServiceCIDRs, Error, []Group{Addresses},
			"A load balancer IP or external IP is in a ServiceCIDR: a Service may get it as its cluster IP.",
			"Take the address from another range, and find out who wrote it."},
		{AddressForbidden, Error, []Group{Addresses},
			"A load balancer IP or external IP is a loopback, link-local, multicast or unspecified address.",
			"Find out who wrote it. A user who can write such addresses can capture traffic that nodes send to themselves (CVE-2020-8554)."},
		{ExternalIPsWithheld, Warning, []Group{Addresses},
			"External IPs are not served, because the feature gate AllowServiceExternalIPs is off.",
			"Let a controller acknowledge an address. \"kube-proxy audit -o manifests\" prints manifests to use instead; see docs/external-ips.md."},
		{FamilyNotServed, Warning, []Group{Endpoints, Addresses},
			"Endpoints, a load balancer IP or an external IP are of an IP family in which the Service has no cluster IP. They are not served.",
			"Set ipFamilyPolicy to PreferDualStack, or let the controller give an address of the Service's family."},
		{StatusNotServed, Warning, []Group{Addresses},
			"An address is in status.loadBalancer of a Service whose type is not LoadBalancer. It is not served.",
			"Set the type to LoadBalancer, or find out which controller wrote the status, or left it when the type changed."},
		{TooLarge, Error, []Group{Addresses},
			"With all its ports, addresses and endpoints a Service would need too many rules. Its last ports are not served.",
			"Use several Services with fewer ports each; see docs/scale.md."},
		{SourceRanges, Warning, []Group{Addresses},
			"loadBalancerSourceRanges has ranges of one IP family, and the Service has load balancer IPs of both: the other one is open to everyone.",
			"Add a range of the other family, such as ::1/128 to allow no client."},
		{NodePortRange, Warning, []Group{Addresses},
			"A node port or health check node port is outside 30000-32767, the default range: it may take the port of a program on the node.",
			"Let the API server choose the port. If this cluster has another --service-node-port-range, skip this code."},
		{HealthCheckShared, Error, []Group{Addresses},
			"A health check node port is also that of another Service, or a node port: load balancers get the wrong answer.",
			"Create one of the Services again, so that the API server allocates another port."},
		{HealthCheckMissing, Warning, []Group{Addresses},
			"A Service has load balancer IPs and the external traffic policy Local, but no health check node port: load balancers do not learn which nodes have endpoints.",
			"Create the Service again, so that the API server allocates one; or check that the load balancer needs none, as one that announces addresses itself."},
		{InvalidField, Error, []Group{Addresses, Endpoints, Nodes},
			"A field has a value that cannot be used. The proxy ignores it or uses a default; everything else of the object is served. A proxy that reads manifests itself (--manifests) refuses the object.",
			"Correct the field. The API server does not accept such values today: the object may be old, or a manifest."},
		{RefusedManifest, Info, []Group{Addresses, Endpoints, Nodes},
			"An object in a manifest is one that a proxy which reads the manifest itself (--manifests) refuses, and an API server may not: it has an unknown field, or lacks what an API server sets or allocates.",
			"If a proxy reads the manifest, correct it: the proxy does not use the object. A Service without a cluster IP has no findings of other codes."},
	}
}

func nodeDefinitions() []Definition {
	return []Definition{
		{NodeWithoutAddress, Warning, []Group{Nodes},
			"A Node has neither an InternalIP nor an ExternalIP: its proxy does not know the node's primary address.",
			"See whether kubelet and the cloud controller manager run, or set nodeIPOverride (--bind-address)."},
		{NodeWithoutPodCIDR, Warning, []Group{Nodes},
			"Local traffic is detected by NodeCIDR, and a Node has no spec.podCIDRs: its proxy masquerades all connections to cluster IPs.",
			"Let kube-controller-manager allocate the ranges (--allocate-node-cidrs), or choose another detectLocalMode."},
	}
}
