package manifests

import corev1 "k8s.io/api/core/v1"

// setKubeProxyVersion gives status.nodeInfo.kubeProxyVersion the one value that it may have in a Node of our making
// (KEP-4004). The field is deprecated, since who fills it in, kubelet, does not know: so it is unset, and cleared where
// it was set; or, for those who still read it, it is what kubelet says of itself, as it always was. A Node made without
// a kubelet has no kubeletVersion, and then neither has it the other.
func setKubeProxyVersion(node *corev1.Node, report bool) {
	info := &node.Status.NodeInfo
	info.KubeProxyVersion = "" //nolint:staticcheck // deprecated is what it is here for
	if report {
		info.KubeProxyVersion = info.KubeletVersion //nolint:staticcheck // the same
	}
}
