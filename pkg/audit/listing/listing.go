// Package listing hands the objects of a cluster, or of files, to an audit.
package listing

import (
	"context"
	"fmt"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/seed-11a05479/kube-proxy/pkg/audit"
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
	fmt.Fprintf(p.Out, "\r\x1b[KAudited %d%s %s", done, total, what)
}

// clear removes what was shown.
func (p *Progress) clear() {
	if p.Out != nil {
		fmt.Fprint(p.Out, "\r\x1b[K")
	}
}

// Client connects to a cluster as kubectl would, or as a pod. kubeconfig and context may be empty.
func Client(kubeconfig, context string) (corev1client.CoreV1Interface, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: context}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("find the API server: %w; give --kubeconfig, or --manifests to go without one", err)
	}
	cfg.ContentType, cfg.AcceptContentTypes = "application/vnd.kubernetes.protobuf", "application/vnd.kubernetes.protobuf,application/json"
	cfg.QPS = -1 // one page is asked for after the other, which is limit enough
	return corev1client.NewForConfig(rest.AddUserAgent(cfg, "kube-proxy-audit"))
}

// Cluster audits the Nodes and Services of a cluster, a page at a time.
func Cluster(ctx context.Context, client corev1client.CoreV1Interface, auditor *audit.Auditor, shown *Progress) error {
	defer shown.clear()
	err := pages("Nodes", nodesPage, shown, func(options metav1.ListOptions) (metav1.ListInterface, int, error) {
		list, err := client.Nodes().List(ctx, options)
		if err != nil {
			return nil, 0, err
		}
		for i := range list.Items {
			auditor.Node(&list.Items[i])
		}
		return list, len(list.Items), nil
	})
	if err != nil {
		return err
	}
	return pages("Services", servicesPage, shown, func(options metav1.ListOptions) (metav1.ListInterface, int, error) {
		list, err := client.Services(metav1.NamespaceAll).List(ctx, options)
		if err != nil {
			return nil, 0, err
		}
		for i := range list.Items {
			auditor.Service(&list.Items[i])
		}
		return list, len(list.Items), nil
	})
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
