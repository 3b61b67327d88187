package apiserver

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
)

// The accepted media types. Protobuf is preferred because it is cheaper to decode.
const (
	protobuf    = "application/vnd.kubernetes.protobuf"
	protoOrJSON = protobuf + ",application/json"
)

// newScheme returns a scheme of only the kinds that this package reads: registering all kinds of an API group costs
// megabytes.
func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	scheme.AddKnownTypes(corev1.SchemeGroupVersion, &corev1.Service{}, &corev1.ServiceList{}, &corev1.Node{}, &corev1.NodeList{})
	scheme.AddKnownTypes(discoveryv1.SchemeGroupVersion, &discoveryv1.EndpointSlice{}, &discoveryv1.EndpointSliceList{})
	scheme.AddKnownTypes(networkingv1.SchemeGroupVersion, &networkingv1.ServiceCIDR{}, &networkingv1.ServiceCIDRList{})
	scheme.AddUnversionedTypes(schema.GroupVersion{Version: "v1"}, &metav1.Status{})
	for _, version := range []schema.GroupVersion{corev1.SchemeGroupVersion, discoveryv1.SchemeGroupVersion, networkingv1.SchemeGroupVersion} {
		metav1.AddToGroupVersion(scheme, version)
	}
	return scheme
}

// newClients returns a client for each API group of the resources. They share connections.
func newClients(config *rest.Config, resources []*resource) (map[schema.GroupVersion]rest.Interface, error) {
	scheme := newScheme()
	codecs, err := newLean(serializer.NewCodecFactory(scheme).WithoutConversion(), scheme, resources)
	if err != nil {
		return nil, fmt.Errorf("selecting the fields to decode: %w", err)
	}
	transport, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("creating the HTTP client for the API server: %w", err)
	}
	clients := map[schema.GroupVersion]rest.Interface{}
	for _, r := range resources {
		c := rest.CopyConfig(config)
		c.GroupVersion = &r.version
		c.APIPath = "/apis"
		if r.version.Group == "" {
			c.APIPath = "/api"
		}
		c.NegotiatedSerializer = codecs
		c.ContentType, c.AcceptContentTypes = protobuf, protoOrJSON
		client, err := rest.RESTClientForConfigAndClient(c, transport)
		if err != nil {
			return nil, fmt.Errorf("creating the client for %s: %w", r.version, err)
		}
		clients[r.version] = client
	}
	return clients, nil
}
