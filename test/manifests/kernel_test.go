//go:build linux

package manifests

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/seed-11a05479/kube-proxy/test/e2e"
	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// TestKernelServerAccepts creates every object in a real API server, as a dry run. Unknown fields are errors, so this checks
// more than the server's OpenAPI schemas can: its validation and admission, too.
func TestKernelServerAccepts(t *testing.T) {
	netns.Require(t)
	lab := netns.Start(t, netns.Options{})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute) // the servers may have to be built
	defer cancel()
	cluster, err := e2e.StartCluster(ctx, lab.Node1.Host, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	// A Pod needs one; the controller that creates it is not there.
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	if _, err := cluster.Client.CoreV1().ServiceAccounts("kube-system").Create(ctx, account, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	client, err := dynamic.NewForConfig(cluster.Config("admin"))
	if err != nil {
		t.Fatal(err)
	}
	groups, err := restmapper.GetAPIGroupResources(cluster.Client.Discovery())
	if err != nil {
		t.Fatal(err)
	}
	mapper := restmapper.NewDiscoveryRESTMapper(groups)
	create := func(o object) error {
		u := &unstructured.Unstructured{Object: o}
		kind := u.GroupVersionKind()
		mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
		if err != nil {
			return err
		}
		var into dynamic.ResourceInterface = client.Resource(mapping.Resource)
		if u.GetNamespace() != "" {
			into = client.Resource(mapping.Resource).Namespace(u.GetNamespace())
		}
		_, err = into.Create(ctx, u, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict})
		return err
	}
	for name, values := range variants {
		for from, all := range map[string]map[string]object{
			"overlay": kustomize(t, filesys.MakeFsOnDisk(), filepath.Join(overlays, name)),
			"chart":   objects(t, needed, values),
		} {
			for key, o := range all {
				if err := create(o); err != nil {
					t.Errorf("%s %s: %s: %v", from, name, key, err)
				}
			}
		}
	}
	// The same way finds what is wrong.
	for key, o := range objects(t, needed, `updateStrategy: {rollingUpdate: {maxSurge: 1, maxUnavailable: 1}}`) {
		if err := create(o); strings.HasPrefix(key, "DaemonSet ") != apierrors.IsInvalid(err) {
			t.Errorf("%s with a wrong update strategy: %v", key, err)
		}
	}
}
