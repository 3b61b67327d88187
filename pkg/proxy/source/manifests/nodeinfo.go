package manifests

import corev1 "k8s.io/api/core/v1"

// setKubeProxyVersion sets status.nodeInfo.kubeProxyVersion of a Node that is made from the machine. The field is
// deprecated (KEP-4004), because kubelet, which sets it, does not know kube-proxy's version. It is empty, or with report the
// same as kubeletVersion, as kubelet used to set it.
func setKubeProxyVersion(node *corev1.Node, report bool) {
	info := &node.Status.NodeInfo
	info.KubeProxyVersion = "" //nolint:staticcheck // the function exists for this deprecated field
	if report {
		info.KubeProxyVersion = info.KubeletVersion //nolint:staticcheck // the same
	}
}
