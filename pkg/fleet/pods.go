package fleet

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed-11a05479/kube-proxy/pkg/apiclient"
)

// proxyName is the proxy's container, and its pods' label k8s-app, in the manifests of kubeadm, managed clusters and this repository.
const proxyName = "kube-proxy"

// Selection selects the proxy's pods.
type Selection struct {
	Namespace string
	// Selector is a label selector; empty selects the pods that have a container named kube-proxy, or the label k8s-app=kube-proxy.
	Selector string
	// Node selects the pods of one node; empty selects all.
	Node string
}

// target is a node with the proxy's pod.
type target struct {
	node string
	pod  string // empty if there is none
	// container is the proxy's, image the container's, without its registry.
	container, image string
	// problem is why the pod cannot be asked.
	problem string
}

// find returns the proxy's pod of each node that has one, sorted by node.
func find(ctx context.Context, clients apiclient.Clients, of Selection) ([]target, error) {
	options := metav1.ListOptions{LabelSelector: of.Selector, ResourceVersion: "0"} // from the API server's memory
	if of.Node != "" {
		options.FieldSelector = "spec.nodeName=" + of.Node
	}
	var list corev1.PodList
	if err := clients.List(ctx, apiclient.Pods, of.Namespace, options, &list); err != nil {
		return nil, fmt.Errorf("list the pods of the proxy in namespace %s: %w", of.Namespace, err)
	}
	best := map[string]*corev1.Pod{}
	for i := range list.Items {
		pod := &list.Items[i]
		if pod.Spec.NodeName == "" || of.Selector == "" && proxyIn(pod).Name != proxyName && pod.Labels["k8s-app"] != proxyName {
			continue
		}
		if other := best[pod.Spec.NodeName]; other == nil || better(pod, other) {
			best[pod.Spec.NodeName] = pod
		}
	}
	var all []target
	for node, pod := range best {
		all = append(all, targetOf(node, pod))
	}
	slices.SortFunc(all, func(a, b target) int { return cmp.Compare(a.node, b.node) })
	return all, nil
}

// better reports whether a pod of a node rather serves than another one: during an update a node has two.
func better(a, b *corev1.Pod) bool {
	if serves, other := serving(a), serving(b); serves != other {
		return serves
	}
	return b.CreationTimestamp.Before(&a.CreationTimestamp)
}

func serving(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp == nil
}

// proxyIn returns the proxy's container: the one with that name, or else the one that kubectl chooses. Each pod has one.
func proxyIn(pod *corev1.Pod) *corev1.Container {
	for _, name := range []string{proxyName, pod.Annotations["kubectl.kubernetes.io/default-container"]} {
		if i := slices.IndexFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == name }); i >= 0 {
			return &pod.Spec.Containers[i]
		}
	}
	return &pod.Spec.Containers[0]
}

func targetOf(node string, pod *corev1.Pod) target {
	c := proxyIn(pod)
	t := target{node: node, pod: pod.Name, container: c.Name, image: c.Image[strings.LastIndexByte(c.Image, '/')+1:]}
	running := pod.Status.Phase == corev1.PodRunning
	if !running {
		t.problem = fmt.Sprintf("the pod is %s", pod.Status.Phase)
	}
	for _, status := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		// Others may wait in a pod that runs. If the proxy does, another program on the node may listen on its ports.
		if w := status.State.Waiting; w != nil && w.Reason != "" && (!running || status.Name == t.container) {
			t.problem = fmt.Sprintf("the pod is %s: %s", pod.Status.Phase, strings.TrimSuffix(w.Reason+": "+w.Message, ": "))
			break
		}
	}
	return t
}

// nodeNames returns the names of all Linux nodes; ok is false without the right to list Nodes. It asks for metadata only: a Node may have
// some tens of kilobytes.
func nodeNames(ctx context.Context, clients apiclient.Clients) (names []string, ok bool, err error) {
	body, err := clients[apiclient.Nodes.Version].Get().Resource(apiclient.Nodes.Name).Param("resourceVersion", "0").
		SetHeader("Accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json").DoRaw(ctx)
	switch {
	case apierrors.IsForbidden(err):
		return nil, false, nil
	case err != nil:
		return nil, false, fmt.Errorf("list the Nodes: %w", err)
	}
	var list metav1.PartialObjectMetadataList
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, false, fmt.Errorf("list the Nodes: %w", err)
	}
	for i := range list.Items {
		if os := list.Items[i].Labels[corev1.LabelOSStable]; os == "" || os == "linux" {
			names = append(names, list.Items[i].Name)
		}
	}
	return names, true, nil
}
