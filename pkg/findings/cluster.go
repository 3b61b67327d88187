package findings

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/seed-11a05479/kube-proxy/pkg/apiclient"
	"github.com/seed-11a05479/kube-proxy/pkg/terminal"
)

// kind is a kind of objects that is listed.
type kind struct {
	what     string
	resource apiclient.Resource
	limit    int64 // the objects of one page
	list     func() list
}

// list is a typed list of objects.
type list interface {
	runtime.Object
	metav1.ListInterface
}

// kinds are those that an Analyzer needs. A Node is some tens of kilobytes, most of it the names of images.
func (a *Analyzer) kinds() []kind {
	kinds := []kind{
		{"Nodes", apiclient.Nodes, 100, func() list { return &corev1.NodeList{} }},
		{"Services", apiclient.Services, 500, func() list { return &corev1.ServiceList{} }},
	}
	if a.objects == nil {
		return kinds
	}
	return append(kinds, kind{"EndpointSlices", apiclient.EndpointSlices, 500, func() list { return &discoveryv1.EndpointSliceList{} }},
		kind{cidrs, apiclient.ServiceCIDRs, 500, func() list { return &networkingv1.ServiceCIDRList{} }})
}

// cidrs is a kind that API servers before Kubernetes 1.33 do not have.
const cidrs = "ServiceCIDRs"

// Connect returns clients of an API server. Requests are not limited: the pages of a list are requested one after another.
func Connect(config *rest.Config) (apiclient.Clients, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1
	return apiclient.New(config, apiclient.Nodes, apiclient.Services, apiclient.EndpointSlices, apiclient.ServiceCIDRs)
}

// Cluster analyzes the Nodes and Services of a cluster and, if they are needed, its EndpointSlices and ServiceCIDRs. It
// reads a page at a time, and shows how much it has read.
func Cluster(ctx context.Context, clients apiclient.Clients, analyzer *Analyzer, progress *terminal.Progress) error {
	defer progress.Clear()
	for _, kind := range analyzer.kinds() {
		done := 0
		for more := (metav1.ListOptions{Limit: kind.limit}); ; {
			page := kind.list()
			err := clients.List(ctx, kind.resource, metav1.NamespaceAll, more, page)
			if kind.what == cidrs && apierrors.IsNotFound(err) {
				break
			}
			if err != nil {
				return listError(kind.what, done, err)
			}
			_ = meta.EachListItem(page, func(object runtime.Object) error { // it is a list, and nothing fails
				analyzer.Look(object)
				return nil
			})
			done += meta.LenList(page)
			total := ""
			if left := page.GetRemainingItemCount(); left != nil {
				total = fmt.Sprintf(" of %d", int64(done)+*left)
			}
			progress.Show("Read %d%s %s", done, total, kind.what)
			if more.Continue = page.GetContinue(); more.Continue == "" {
				break
			}
		}
	}
	return nil
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
