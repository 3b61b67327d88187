package iptables_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend/backendtest"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/source/manifests"
	"github.com/seed-11a05479/kube-proxy/test/cases"
)

// TestKernelManyFrontends sends the packets of the case cluster-ip among more Services than one chain holds, in both families:
// iptables 1.8.7 cannot write the rules by which the others find a chain.
func TestKernelManyFrontends(t *testing.T) {
	variants(t, func(t *testing.T, variant ipt.Variant) {
		b := backendtest.NewBench(t, opener(variant))
		b.BackendName = "iptables"
		for _, family := range []cluster.Family{cluster.IPv4, cluster.IPv6} {
			c := cases.Of(t, shared, "cluster-ip", family)
			snapshot, err := c.With(func(u *cluster.Update) { manifests.Apply(u, others(family)) })
			if err != nil {
				t.Fatal(err)
			}
			b.Sync(t, plan.Compute(snapshot, c.Options, nil))
			b.Ask(t, c)
		}
	})
}

// others returns 200 Services, every second one with an endpoint.
func others(family cluster.Family) (all []runtime.Object) {
	for i := range 200 {
		ip, endpoint := fmt.Sprintf("10.96.99.%d", i+1), "10.244.2.3"
		if family == cluster.IPv6 {
			ip, endpoint = fmt.Sprintf("fd00:10:96::99:%x", i+1), "fd00:10:244:2::3"
		}
		name := fmt.Sprint("service-", i)
		all = append(all, &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "others", Name: name},
			Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, ClusterIP: ip, ClusterIPs: []string{ip},
				Ports: []corev1.ServicePort{{Protocol: corev1.ProtocolTCP, Port: 80}}},
		})
		if i%2 == 0 {
			continue
		}
		all = append(all, &discoveryv1.EndpointSlice{
			ObjectMeta:  metav1.ObjectMeta{Namespace: "others", Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: name}},
			AddressType: discoveryv1.AddressType(family.String()),
			Ports:       []discoveryv1.EndpointPort{{Name: new(""), Port: new(int32(8080)), Protocol: new(corev1.ProtocolTCP)}},
			Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{endpoint}}},
		})
	}
	return all
}
