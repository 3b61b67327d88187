package findings

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/seed-11a05479/kube-proxy/pkg/apiclient"
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

// The resources that are listed.
var (
	nodes          = corev1.SchemeGroupVersion.WithResource("nodes")
	services       = corev1.SchemeGroupVersion.WithResource("services")
	endpointSlices = discoveryv1.SchemeGroupVersion.WithResource("endpointslices")
	cidrs          = networkingv1.SchemeGroupVersion.WithResource("servicecidrs")
)

// Connect returns clients of an API server. Requests are not limited: the pages of a list are requested one after another.
func Connect(config *rest.Config) (apiclient.Clients, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1
	return apiclient.New(config,
		apiclient.Kinds{Version: corev1.SchemeGroupVersion, Objects: []runtime.Object{&corev1.NodeList{}, &corev1.ServiceList{}}},
		apiclient.Kinds{Version: discoveryv1.SchemeGroupVersion, Objects: []runtime.Object{&discoveryv1.EndpointSliceList{}}},
		apiclient.Kinds{Version: networkingv1.SchemeGroupVersion, Objects: []runtime.Object{&networkingv1.ServiceCIDRList{}}},
	)
}

// Cluster analyzes the Nodes and Services of a cluster and, if they are needed, its EndpointSlices and ServiceCIDRs. It
// reads a page at a time.
func Cluster(ctx context.Context, clients apiclient.Clients, analyzer *Analyzer, shown *Progress) error {
	defer shown.clear()
	err := pages("Nodes", nodesPage, shown, func(options metav1.ListOptions) (metav1.ListInterface, int, error) {
		var list corev1.NodeList
		err := clients.List(ctx, nodes, metav1.NamespaceAll, options, &list)
		for i := range list.Items {
			analyzer.Node(&list.Items[i])
		}
		return &list, len(list.Items), err
	})
	if err != nil {
		return err
	}
	err = pages("Services", servicesPage, shown, func(options metav1.ListOptions) (metav1.ListInterface, int, error) {
		var list corev1.ServiceList
		err := clients.List(ctx, services, metav1.NamespaceAll, options, &list)
		for i := range list.Items {
			analyzer.Service(&list.Items[i])
		}
		return &list, len(list.Items), err
	})
	if err != nil || analyzer.objects == nil {
		return err
	}
	err = pages("EndpointSlices", servicesPage, shown, func(options metav1.ListOptions) (metav1.ListInterface, int, error) {
		var list discoveryv1.EndpointSliceList
		err := clients.List(ctx, endpointSlices, metav1.NamespaceAll, options, &list)
		for i := range list.Items {
			analyzer.Slice(&list.Items[i])
		}
		return &list, len(list.Items), err
	})
	if err != nil {
		return err
	}
	return serviceCIDRs(ctx, clients, analyzer)
}

// serviceCIDRs lists the ServiceCIDRs, which API servers before Kubernetes 1.33 do not have.
func serviceCIDRs(ctx context.Context, clients apiclient.Clients, analyzer *Analyzer) error {
	var list networkingv1.ServiceCIDRList
	err := clients.List(ctx, cidrs, metav1.NamespaceAll, metav1.ListOptions{}, &list)
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return listError("ServiceCIDRs", 0, err)
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
			return listError(what, done, err)
		}
		done += count
		shown.show(what, done, page.GetRemainingItemCount())
		if next = page.GetContinue(); next == "" {
			return nil
		}
	}
}

// listError describes why a list ended after so many objects. The path of a request says nothing to a user.
func listError(what string, done int, err error) error {
	if request, ok := errors.AsType[*url.Error](err); ok {
		err = fmt.Errorf("the API server does not answer: %w", request.Err)
	}
	if done > 0 {
		what = fmt.Sprintf("%s after %d", what, done)
	}
	return fmt.Errorf("list %s: %w", what, err)
}
