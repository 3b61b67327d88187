package findings

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// BenchmarkAnalyze analyzes 10,000 Services with 2 endpoints each that are healthy, without reading them from anywhere.
func BenchmarkAnalyze(b *testing.B) {
	const n = 10_000
	services, slices := make([]*corev1.Service, n), make([]*discoveryv1.EndpointSlice, n)
	for i := range n {
		name := fmt.Sprint("s", i)
		services[i] = &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Spec: corev1.ServiceSpec{
			ClusterIP: fmt.Sprintf("10.96.%d.%d", i>>8, i&255), Selector: map[string]string{"app": "a"}, Ports: []corev1.ServicePort{{Name: "http", Port: 80}}}}
		endpoint := func(k int) discoveryv1.Endpoint {
			return discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.%d.%d.%d", 200+k, i>>8, i&255)}, NodeName: new("n1")}
		}
		slices[i] = &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name + "-1", Labels: map[string]string{
			discoveryv1.LabelServiceName: name, discoveryv1.LabelManagedBy: managedBy}}, AddressType: discoveryv1.AddressTypeIPv4,
			Ports: []discoveryv1.EndpointPort{{Name: new("http"), Port: new(int32(8080))}}, Endpoints: []discoveryv1.Endpoint{endpoint(0), endpoint(1)}}
	}
	b.ReportAllocs()
	for b.Loop() {
		a := New(Options{})
		a.Look(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: everyNode}, Status: corev1.NodeStatus{
			Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.1"}}}})
		for i := range n {
			a.Look(services[i])
			a.Look(slices[i])
		}
		if found := a.Report().Findings; len(found) > 1 { // the first round replaced n1 by everyNode
			b.Fatal(found)
		}
	}
}
