package inspect

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/seed-11a05479/kube-proxy/pkg/apiclient"
)

// Pod is a pod with its IP addresses.
type Pod struct {
	namespace, name string
	addresses       []string
}

// FindPod returns a pod. Without the right to read pods it looks for an EndpointSlice that names the pod: a proxy's service account
// may list these.
func FindPod(ctx context.Context, config *rest.Config, namespace, name string) (*Pod, error) {
	clients, err := apiclient.New(config, apiclient.Pods, apiclient.EndpointSlices)
	if err != nil {
		return nil, fmt.Errorf("find the address of pod %s/%s: %w", namespace, name, err)
	}
	found := &Pod{namespace: namespace, name: name}
	var pod corev1.Pod
	switch err := clients.Get(ctx, apiclient.Pods, namespace, name, &pod); {
	case apierrors.IsForbidden(err):
		if found.addresses, err = inSlices(ctx, clients, namespace, name); err != nil {
			return nil, err
		}
	case err != nil:
		return nil, fmt.Errorf("find the address of pod %s/%s: %w", namespace, name, err)
	default:
		for _, ip := range pod.Status.PodIPs {
			found.addresses = append(found.addresses, ip.IP)
		}
	}
	return found, nil
}

// Address returns the pod's IP address of a family, an IPv6 address if ipv6 is true.
func (p *Pod) Address(ipv6 bool) (string, error) {
	for _, address := range p.addresses {
		if strings.Contains(address, ":") == ipv6 {
			return address, nil
		}
	}
	family := "IPv4"
	if ipv6 {
		family = "IPv6"
	}
	return "", fmt.Errorf("pod %s/%s has no %s address yet; its addresses: %q", p.namespace, p.name, family, p.addresses)
}

// inSlices returns the addresses that EndpointSlices have for a pod.
func inSlices(ctx context.Context, clients apiclient.Clients, namespace, name string) (addresses []string, err error) {
	var list discoveryv1.EndpointSliceList
	if err := clients.List(ctx, apiclient.EndpointSlices, namespace, metav1.ListOptions{}, &list); err != nil {
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
