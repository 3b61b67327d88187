package cases

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/source/manifests"
)

// steps returns the case and the later steps in its file.
func (c *Case) steps() ([]*Case, error) {
	all := []*Case{c}
	for n := 2; part(c.Archive, fmt.Sprint("objects.yaml ", n)) != ""; n++ {
		name, family, _ := strings.Cut(c.Name, "/")
		next := &Case{
			Name: fmt.Sprintf("%s %d/%s", name, n, family), Path: c.Path, Archive: c.Archive, Family: c.Family, step: n,
			Options: c.Options, NodeAddresses: c.NodeAddresses, Before: all[len(all)-1],
		}
		if err := next.read(); err != nil {
			return nil, fmt.Errorf("step %d: %w", n, err)
		}
		all = append(all, next)
	}
	return all, nil
}

// build sets the objects and snapshot of a case: for a later step, it applies the changes to the previous step in one
// update. Objects with a deletionTimestamp are deleted.
func (c *Case) build(changes []runtime.Object) {
	if c.Before == nil {
		c.builder = c.newBuilder(changes)
	} else {
		c.builder = c.Before.builder
		c.Objects = slices.Clone(c.Before.Objects)
	}
	// A case may contain objects that the builder rejects, so its problems are not an error here.
	_ = c.builder.Update(func(u *cluster.Update) {
		for _, object := range changes {
			c.Objects = slices.DeleteFunc(c.Objects, func(o runtime.Object) bool { return identity(o) == identity(object) })
			if object.(metav1.Object).GetDeletionTimestamp() != nil {
				remove(u, object)
				continue
			}
			c.Objects = append(c.Objects, object)
			manifests.Apply(u, []runtime.Object{object})
		}
	})
	c.Snapshot = c.builder.Snapshot()
}

// identity returns a string that is unique for each object.
func identity(object runtime.Object) string {
	named := object.(metav1.Object)
	return fmt.Sprintf("%T %s/%s", object, named.GetNamespace(), named.GetName())
}

// remove deletes an object.
func remove(u *cluster.Update, object runtime.Object) {
	switch o := object.(type) {
	case *corev1.Service:
		u.DeleteService(cluster.ServiceName{Namespace: o.Namespace, Name: o.Name})
	case *discoveryv1.EndpointSlice:
		u.DeleteEndpointSlice(cluster.SliceName{Namespace: o.Namespace, Name: o.Name})
	case *networkingv1.ServiceCIDR:
		u.DeleteServiceCIDR(o.Name)
	}
}
