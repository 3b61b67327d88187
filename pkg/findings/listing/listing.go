// Package listing passes the objects of a cluster, or of files, to an Analyzer.
package listing

import (
	"context"
	"fmt"
	"io"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	discoveryv1client "k8s.io/client-go/kubernetes/typed/discovery/v1"
	networkingv1client "k8s.io/client-go/kubernetes/typed/networking/v1"
	"k8s.io/client-go/rest"

	"github.com/seed-11a05479/kube-proxy/pkg/findings"
)

// The objects of one page. A Node is some tens of kilobytes, most of it the names of images.
const (
	servicesPage = 500
	nodesPage    = 100
)

// Progress shows on a terminal how much has been read.
type Progress struct {
	// Out is the terminal; nil shows nothing.
	Out io.Writer
}

// show overwrites what was shown before.
func (p *Progress) show(what string, done int, remaining *int64) {
	if p.Out == nil {
		return
	}
	total := ""
	if remaining != nil {
		total = fmt.Sprintf(" of %d", int64(done)+*remaining)
	}
	fmt.Fprintf(p.Out, "\r\x1b[KRead %d%s %s", done, total, what)
}

// clear removes what was shown.
func (p *Progress) clear() {
	if p.Out != nil {
		fmt.Fprint(p.Out, "\r\x1b[K")
	}
}

// Clients are the parts of an API server's clients that are used.
type Clients struct {
	core       corev1client.CoreV1Interface
	discovery  discoveryv1client.DiscoveryV1Interface
	networking networkingv1client.NetworkingV1Interface
}

// Connect returns clients of an API server. Requests are not limited: the pages of a list are requested one after another.
func Connect(config *rest.Config) (_ *Clients, err error) {
	cfg := rest.CopyConfig(config)
	cfg.ContentType, cfg.AcceptContentTypes = "application/vnd.kubernetes.protobuf", "application/vnd.kubernetes.protobuf,application/json"
	cfg.QPS = -1
	c := &Clients{}
	if c.core, err = corev1client.NewForConfig(cfg); err != nil {
		return nil, err
	}
	if c.discovery, err = discoveryv1client.NewForConfig(cfg); err != nil {
		return nil, err
	}
	c.networking, err = networkingv1client.NewForConfig(cfg)
	return c, err
}

// Cluster analyzes the Nodes and Services of a cluster and, if they are needed, its EndpointSlices and ServiceCIDRs. It
// reads a page at a time.
func Cluster(ctx context.Context, clients *Clients, analyzer *findings.Analyzer, shown *Progress) error {
	defer shown.clear()
	err := pages("Nodes", nodesPage, shown, func(options metav1.ListOptions) (metav1.ListInterface, int, error) {
		list, err := clients.core.Nodes().List(ctx, options)
		if err != nil {
			return nil, 0, err
		}
		for i := range list.Items {
			analyzer.Node(&list.Items[i])
		}
		return list, len(list.Items), nil
	})
	if err != nil {
		return err
	}
	err = pages("Services", servicesPage, shown, func(options metav1.ListOptions) (metav1.ListInterface, int, error) {
		list, err := clients.core.Services(metav1.NamespaceAll).List(ctx, options)
		if err != nil {
			return nil, 0, err
		}
		for i := range list.Items {
			analyzer.Service(&list.Items[i])
		}
		return list, len(list.Items), nil
	})
	if err != nil || !analyzer.NeedsSlices() {
		return err
	}
	if err := pages("EndpointSlices", servicesPage, shown, func(options metav1.ListOptions) (metav1.ListInterface, int, error) {
		list, err := clients.discovery.EndpointSlices(metav1.NamespaceAll).List(ctx, options)
		if err != nil {
			return nil, 0, err
		}
		for i := range list.Items {
			analyzer.Slice(&list.Items[i])
		}
		return list, len(list.Items), nil
	}); err != nil {
		return err
	}
	return serviceCIDRs(ctx, clients, analyzer)
}

// serviceCIDRs lists the ServiceCIDRs, which API servers before Kubernetes 1.33 do not have.
func serviceCIDRs(ctx context.Context, clients *Clients, analyzer *findings.Analyzer) error {
	list, err := clients.networking.ServiceCIDRs().List(ctx, metav1.ListOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("list ServiceCIDRs: %w", err)
	}
	for i := range list.Items {
		analyzer.ServiceCIDR(&list.Items[i])
	}
	return nil
}

// pages asks for one page after another.
func pages(what string, limit int64, shown *Progress, list func(metav1.ListOptions) (metav1.ListInterface, int, error)) error {
	done := 0
	for next := ""; ; {
		page, count, err := list(metav1.ListOptions{Limit: limit, Continue: next})
		if err != nil {
			return fmt.Errorf("list %s after %d: %w", what, done, err)
		}
		done += count
		shown.show(what, done, page.GetRemainingItemCount())
		if next = page.GetContinue(); next == "" {
			return nil
		}
	}
}
