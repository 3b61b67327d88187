package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

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

// progress tells how far it is, on a terminal. Without a writer it tells nothing.
type progress struct {
	out io.Writer
}

// show overwrites what was shown before.
func (p *progress) show(what string, done int, remaining *int64) {
	if p.out == nil {
		return
	}
	total := ""
	if remaining != nil {
		total = fmt.Sprintf(" of %d", int64(done)+*remaining)
	}
	fmt.Fprintf(p.out, "\r\x1b[KLooked at %d%s %s", done, total, what)
}

// clear takes what was shown away.
func (p *progress) clear() {
	if p.out != nil {
		fmt.Fprint(p.out, "\r\x1b[K")
	}
}

// client reaches the cluster as kubectl would, or as a pod.
func (o *auditOptions) client() (corev1client.CoreV1Interface, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.kubeconfig
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: o.context}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("cannot tell how to reach the API server: %w; give --kubeconfig, or --manifests to go without one", err)
	}
	cfg.ContentType, cfg.AcceptContentTypes = "application/vnd.kubernetes.protobuf", "application/vnd.kubernetes.protobuf,application/json"
	cfg.QPS = -1 // one page is asked for after the other, which is limit enough
	return corev1client.NewForConfig(rest.AddUserAgent(cfg, "kube-proxy-audit"))
}

// auditCluster looks at the Nodes and Services of a cluster, a page at a time.
func (o *auditOptions) auditCluster(ctx context.Context, auditor *audit.Auditor, shown *progress) error {
	client, err := o.client()
	if err != nil {
		return err
	}
	defer shown.clear()
	err = pages("Nodes", nodesPage, shown, func(options metav1.ListOptions) (metav1.ListInterface, int, error) {
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
func pages(what string, limit int64, shown *progress, list func(metav1.ListOptions) (metav1.ListInterface, int, error)) error {
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

// auditManifests looks at the files of a directory, at one file, or at standard input.
func auditManifests(path string, stdin io.Reader, auditor *audit.Auditor) error {
	if path == "-" {
		return auditor.Documents("standard input", stdin)
	}
	files := []string{path}
	info, err := os.Stat(path)
	if err == nil && info.IsDir() {
		files, err = manifestFiles(path)
	}
	if err != nil {
		return err
	}
	for _, name := range files {
		file, err := os.Open(name)
		if err != nil {
			return err
		}
		err = errors.Join(auditor.Documents(name, file), file.Close())
		if err != nil {
			return err
		}
	}
	return nil
}

// manifestFiles are those of a directory that the proxy would read, too.
func manifestFiles(directory string) ([]string, error) {
	entries, err := os.ReadDir(directory)
	if err != nil {
		return nil, err
	}
	var files []string
	for _, entry := range entries {
		ending := strings.ToLower(filepath.Ext(entry.Name()))
		if !entry.IsDir() && !strings.HasPrefix(entry.Name(), ".") && slices.Contains([]string{".yaml", ".yml", ".json"}, ending) {
			files = append(files, filepath.Join(directory, entry.Name()))
		}
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s holds no .yaml, .yml or .json file", directory)
	}
	return files, nil
}
