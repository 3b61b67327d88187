// Package apiclient creates clients of an API server for a few kinds of objects.
//
// Those of client-go (k8s.io/client-go/kubernetes, and what imports it: tools/events, tools/record, leader election, informers) register
// every kind of every API group, and the proxy reads four kinds and writes one. Without them the program has 26.0 instead of 37.8 MB,
// "kube-proxy --version" takes 6.4 instead of 11.5 ms of CPU, and a cold start needs 7 or 8 MB less; so the publisher of Events
// (pkg/proxy/announce) is our own. .golangci.yml forbids the imports, and TestProgramHasFewKinds those by other packages.
package apiclient

import (
	"context"
	"fmt"

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

// Kinds are kinds of objects of one version of an API group.
type Kinds struct {
	Version schema.GroupVersion
	// Objects are an empty value of each type that is read or written: objects or lists.
	Objects []runtime.Object
}

// Scheme returns a scheme of only these kinds, and of the status that describes an error.
func Scheme(kinds ...Kinds) *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, k := range kinds {
		scheme.AddKnownTypes(k.Version, k.Objects...)
		metav1.AddToGroupVersion(scheme, k.Version)
	}
	scheme.AddUnversionedTypes(schema.GroupVersion{Version: "v1"}, &metav1.Status{})
	return scheme
}

// Clients are the clients of one API server.
type Clients map[schema.GroupVersion]rest.Interface

// New returns clients for these kinds, which exchange protobuf unless config chooses another media type. It connects with the first
// request; an error means that the configuration is invalid.
func New(config *rest.Config, kinds ...Kinds) (Clients, error) {
	if config.ContentType == "" && config.AcceptContentTypes == "" {
		config = rest.CopyConfig(config)
		config.ContentType, config.AcceptContentTypes = Protobuf, ProtoOrJSON
	}
	versions := make([]schema.GroupVersion, len(kinds))
	for i, k := range kinds {
		versions[i] = k.Version
	}
	return WithCodecs(config, serializer.NewCodecFactory(Scheme(kinds...)).WithoutConversion(), versions...)
}

// WithCodecs is New with other serializers.
func WithCodecs(config *rest.Config, codecs runtime.NegotiatedSerializer, versions ...schema.GroupVersion) (Clients, error) {
	transport, err := rest.HTTPClientFor(config) // shared, so that the clients share connections
	if err != nil {
		return nil, fmt.Errorf("creating the HTTP client for the API server: %w", err)
	}
	clients := Clients{}
	for _, version := range versions {
		c := rest.CopyConfig(config)
		c.GroupVersion, c.NegotiatedSerializer = &version, codecs
		c.APIPath = "/apis"
		if version.Group == "" {
			c.APIPath = "/api"
		}
		if clients[version], err = rest.RESTClientForConfigAndClient(c, transport); err != nil {
			return nil, fmt.Errorf("creating the client for %s: %w", version, err)
		}
	}
	return clients, nil
}

// List requests a list of the objects of a resource; of all namespaces if namespace is empty.
func (c Clients) List(ctx context.Context, of schema.GroupVersionResource, namespace string, options metav1.ListOptions, into runtime.Object) error {
	return on(c[of.GroupVersion()].Get(), of, namespace).VersionedParams(&options, metav1.ParameterCodec).Do(ctx).Into(into)
}

// Get requests an object.
func (c Clients) Get(ctx context.Context, of schema.GroupVersionResource, namespace, name string, into runtime.Object) error {
	return on(c[of.GroupVersion()].Get(), of, namespace).Name(name).Do(ctx).Into(into)
}

// Create creates an object; into becomes the server's answer. A nil into ignores it.
func (c Clients) Create(ctx context.Context, of schema.GroupVersionResource, namespace string, object, into runtime.Object) error {
	answer := on(c[of.GroupVersion()].Post(), of, namespace).Body(object).Do(ctx)
	if into == nil {
		return answer.Error()
	}
	return answer.Into(into)
}

// PatchJSON changes an object by a JSON patch (RFC 6902).
func (c Clients) PatchJSON(ctx context.Context, of schema.GroupVersionResource, namespace, name string, patch []byte) error {
	return on(c[of.GroupVersion()].Patch(types.JSONPatchType), of, namespace).Name(name).Body(patch).Do(ctx).Error()
}

// on adds what a request is about.
func on(request *rest.Request, of schema.GroupVersionResource, namespace string) *rest.Request {
	return request.NamespaceIfScoped(namespace, namespace != "").Resource(of.Resource)
}
