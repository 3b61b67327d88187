package check

import (
	"context"
	"fmt"
	"net/netip"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/seed-11a05479/kube-proxy/pkg/apiclient"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// servicesPage is the number of Services of one request.
const servicesPage = 500

// server is an API server.
type server struct{ clients apiclient.Clients }

// NewAPI returns an API server, to which it connects at the first request.
func NewAPI(config *rest.Config) (API, error) {
	clients, err := apiclient.New(config, apiclient.Nodes, apiclient.Services, apiclient.AccessReviews)
	return &server{clients}, err
}

// Allowed is part of [API]. It creates a SelfSubjectAccessReview, which every user may create and which stores nothing.
func (s *server) Allowed(ctx context.Context, right Right) (bool, error) {
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: right.Verb, Group: right.Group, Resource: right.Resource}}}
	var answer authorizationv1.SelfSubjectAccessReview
	err := s.clients.Create(ctx, apiclient.AccessReviews, metav1.NamespaceNone, review, &answer)
	if err != nil {
		return false, fmt.Errorf("review the right to %s %s: %w", right.Verb, right.Resource, err)
	}
	return answer.Status.Allowed, nil
}

// NodeAddresses is part of [API]: the addresses that the proxy uses. It lists, because the proxy need not have the right to get.
func (s *server) NodeAddresses(ctx context.Context, name string) (addrs []netip.Addr, found bool, err error) {
	var list corev1.NodeList
	err = s.clients.List(ctx, apiclient.Nodes, metav1.NamespaceAll, metav1.ListOptions{FieldSelector: "metadata.name=" + name}, &list)
	switch {
	case apierrors.IsNotFound(err) || err == nil && len(list.Items) == 0:
		return nil, false, nil
	case err != nil:
		return nil, false, err
	}
	builder := cluster.NewBuilder(name)
	_ = builder.Update(func(u *cluster.Update) { u.SetNode(&list.Items[0]) }) // an address that cannot be read is none
	return builder.Snapshot().Node.Addresses, true, nil
}

// HealthCheckNodePorts is part of [API].
func (s *server) HealthCheckNodePorts(ctx context.Context) ([]uint16, error) {
	var ports []uint16
	for next := ""; ; {
		var list corev1.ServiceList
		if err := s.clients.List(ctx, apiclient.Services, metav1.NamespaceAll, metav1.ListOptions{Limit: servicesPage, Continue: next}, &list); err != nil {
			return nil, err
		}
		for i := range list.Items {
			if port := list.Items[i].Spec.HealthCheckNodePort; port > 0 && port <= 1<<16-1 {
				ports = append(ports, uint16(port))
			}
		}
		if next = list.Continue; next == "" {
			return ports, nil
		}
	}
}
