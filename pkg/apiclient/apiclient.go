// Package apiclient creates clients of an API server for a few resources.
//
// Those of client-go (k8s.io/client-go/kubernetes, and what imports it: tools/events, tools/record, leader election, informers) register
// every kind of every API group, and the proxy reads four kinds and writes one. Without them the program has 26.0 instead of 37.8 MB,
// "kube-proxy --version" takes 6.4 instead of 11.5 ms of CPU, and a cold start needs 7 or 8 MB less; so the publisher of Events
// (pkg/proxy/announce) is our own. .golangci.yml forbids the imports, and TestProgramHasFewKinds those by other packages.
package apiclient

import (
	"context"
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

// Media types. Protobuf is preferred because it is cheaper to decode.
const (
	Protobuf    = "application/vnd.kubernetes.protobuf"
	ProtoOrJSON = Protobuf + ",application/json"
)

// Resource is a resource of an API server.
type Resource struct {
	Version schema.GroupVersion
	Name    string
	// Example is an empty object, list an empty list; nil if none is read.
	Example, list runtime.Object
}

// The resources that are read or written.
var (
	Services       = Resource{corev1.SchemeGroupVersion, "services", &corev1.Service{}, &corev1.ServiceList{}}
	EndpointSlices = Resource{discoveryv1.SchemeGroupVersion, "endpointslices", &discoveryv1.EndpointSlice{}, &discoveryv1.EndpointSliceList{}}
	Nodes          = Resource{corev1.SchemeGroupVersion, "nodes", &corev1.Node{}, &corev1.NodeList{}}
	ServiceCIDRs   = Resource{networkingv1.SchemeGroupVersion, "servicecidrs", &networkingv1.ServiceCIDR{}, &networkingv1.ServiceCIDRList{}}
	Events         = Resource{eventsv1.SchemeGroupVersion, "events", &eventsv1.Event{}, nil}
	Pods           = Resource{corev1.SchemeGroupVersion, "pods", &corev1.Pod{}, &corev1.PodList{}}
	AccessReviews  = Resource{authorizationv1.SchemeGroupVersion, "selfsubjectaccessreviews", &authorizationv1.SelfSubjectAccessReview{}, nil}
)

// Scheme returns a scheme of only the types of these resources, and of the status that describes an error.
func Scheme(resources ...Resource) *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, r := range resources {
		scheme.AddKnownTypes(r.Version, r.Example)
		if r.list != nil {
			scheme.AddKnownTypes(r.Version, r.list)
		}
		metav1.AddToGroupVersion(scheme, r.Version)
	}
	scheme.AddUnversionedTypes(schema.GroupVersion{Version: "v1"}, &metav1.Status{})
	return scheme
}

// Clients are the clients of one API server.
type Clients map[schema.GroupVersion]rest.Interface

// New returns clients for these resources, which exchange protobuf unless config chooses another media type. It connects with the first
// request; an error means that the configuration is invalid.
func New(config *rest.Config, resources ...Resource) (Clients, error) {
	if config.ContentType == "" && config.AcceptContentTypes == "" {
		config = rest.CopyConfig(config)
		config.ContentType, config.AcceptContentTypes = Protobuf, ProtoOrJSON
	}
	return WithCodecs(config, serializer.NewCodecFactory(Scheme(resources...)).WithoutConversion(), resources...)
}

// WithCodecs is New with other serializers.
func WithCodecs(config *rest.Config, codecs runtime.NegotiatedSerializer, resources ...Resource) (Clients, error) {
	transport, err := rest.HTTPClientFor(config) // shared, so that the clients share connections
	if err != nil {
		return nil, fmt.Errorf("creating the HTTP client for the API server: %w", err)
	}
	clients := Clients{}
	for _, r := range resources {
		c := rest.CopyConfig(config)
		c.GroupVersion, c.NegotiatedSerializer = &r.Version, codecs
		c.APIPath = "/apis"
		if r.Version.Group == "" {
			c.APIPath = "/api"
		}
		if clients[r.Version], err = rest.RESTClientForConfigAndClient(c, transport); err != nil {
			return nil, fmt.Errorf("creating the client for %s: %w", r.Version, err)
		}
	}
	return clients, nil
}

// List requests a list of the objects of a resource; of all namespaces if namespace is empty.
func (c Clients) List(ctx context.Context, of Resource, namespace string, options metav1.ListOptions, into runtime.Object) error {
	return on(c[of.Version].Get(), of, namespace).VersionedParams(&options, metav1.ParameterCodec).Do(ctx).Into(into)
}

// Get requests an object.
func (c Clients) Get(ctx context.Context, of Resource, namespace, name string, into runtime.Object) error {
	return on(c[of.Version].Get(), of, namespace).Name(name).Do(ctx).Into(into)
}

// Create creates an object; into becomes the server's answer. A nil into ignores it.
func (c Clients) Create(ctx context.Context, of Resource, namespace string, object, into runtime.Object) error {
	answer := on(c[of.Version].Post(), of, namespace).Body(object).Do(ctx)
	if into == nil {
		return answer.Error()
	}
	return answer.Into(into)
}

// PatchJSON changes an object by a JSON patch (RFC 6902).
func (c Clients) PatchJSON(ctx context.Context, of Resource, namespace, name string, patch []byte) error {
	return on(c[of.Version].Patch(types.JSONPatchType), of, namespace).Name(name).Body(patch).Do(ctx).Error()
}

// on adds what a request is about.
func on(request *rest.Request, of Resource, namespace string) *rest.Request {
	return request.NamespaceIfScoped(namespace, namespace != "").Resource(of.Name)
}
