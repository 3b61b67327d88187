// Package api reads from an API server what the checks of a node need.
package api

import (
	"context"
	"fmt"
	"net/netip"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/seed-11a05479/kube-proxy/pkg/check"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// page is the number of Services of one request.
const page = 500

// Server is an API server.
type Server struct {
	core          corev1client.CoreV1Interface
	authorization authorizationclient.AuthorizationV1Interface
}

var _ check.API = (*Server)(nil)

// New returns a Server that connects at the first request.
func New(config *rest.Config) (*Server, error) {
	s := &Server{}
	var err error
	if s.core, err = corev1client.NewForConfig(config); err != nil {
		return nil, err
	}
	s.authorization, err = authorizationclient.NewForConfig(config)
	return s, err
}

// Allowed is part of [check.API]. It creates a SelfSubjectAccessReview, which every user may create and which stores nothing.
func (s *Server) Allowed(ctx context.Context, right check.Right) (bool, error) {
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: right.Verb, Group: right.Group, Resource: right.Resource}}}
	answer, err := s.authorization.SelfSubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
	if err != nil {
		return false, fmt.Errorf("review the right to %s %s: %w", right.Verb, right.Resource, err)
	}
	return answer.Status.Allowed, nil
}

// NodeAddresses is part of [check.API]: the addresses that the proxy uses. It lists, because the proxy need not have the right to get.
func (s *Server) NodeAddresses(ctx context.Context, name string) (addrs []netip.Addr, found bool, err error) {
	list, err := s.core.Nodes().List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
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

// HealthCheckNodePorts is part of [check.API].
func (s *Server) HealthCheckNodePorts(ctx context.Context) ([]uint16, error) {
	var ports []uint16
	for next := ""; ; {
		list, err := s.core.Services(metav1.NamespaceAll).List(ctx, metav1.ListOptions{Limit: page, Continue: next})
		if err != nil {
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
