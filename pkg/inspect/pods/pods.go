// Package pods finds the addresses of pods in a cluster.
package pods

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// ParseName splits NAMESPACE/POD. It is not ok for any other text.
func ParseName(text string) (namespace, pod string, ok bool) {
	namespace, pod, ok = strings.Cut(text, "/")
	return namespace, pod, ok && namespace != "" && pod != "" && !strings.Contains(pod, "/")
}

// Find is [Address] in the cluster of a client configuration.
func Find(ctx context.Context, config *rest.Config, namespace, name string, ipv6 bool) (string, error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return "", fmt.Errorf("find the address of pod %s/%s: %w", namespace, name, err)
	}
	return Address(ctx, client, namespace, name, ipv6)
}

// Address returns the IP address of a pod, an IPv6 address if ipv6 is true. Without the right to read pods it looks for an
// EndpointSlice that names the pod: a proxy's service account may list these.
func Address(ctx context.Context, client kubernetes.Interface, namespace, name string, ipv6 bool) (string, error) {
	pod, err := client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	var addresses []string
	switch {
	case apierrors.IsForbidden(err):
		if addresses, err = inSlices(ctx, client, namespace, name); err != nil {
			return "", err
		}
	case err != nil:
		return "", fmt.Errorf("find the address of pod %s/%s: %w", namespace, name, err)
	default:
		for _, ip := range pod.Status.PodIPs {
			addresses = append(addresses, ip.IP)
		}
	}
	for _, address := range addresses {
		if strings.Contains(address, ":") == ipv6 {
			return address, nil
		}
	}
	family := "IPv4"
	if ipv6 {
		family = "IPv6"
	}
	return "", fmt.Errorf("pod %s/%s has no %s address yet; its addresses: %q", namespace, name, family, addresses)
}

// inSlices returns the addresses that EndpointSlices have for a pod.
func inSlices(ctx context.Context, client kubernetes.Interface, namespace, name string) (addresses []string, err error) {
	list, err := client.DiscoveryV1().EndpointSlices(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("find pod %s/%s, without the right to read pods: %w", namespace, name, err)
	}
	for _, slice := range list.Items {
		for _, e := range slice.Endpoints {
			if e.TargetRef != nil && e.TargetRef.Kind == "Pod" && e.TargetRef.Name == name {
				addresses = append(addresses, e.Addresses...)
			}
		}
	}
	if addresses == nil {
		return nil, fmt.Errorf("no EndpointSlice names pod %s/%s, and there is no right to read pods: give the pod's IP address", namespace, name)
	}
	return addresses, nil
}
