package apiserver

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/seed-11a05479/kube-proxy/pkg/apiclient"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// realistic adds to an object what objects in a cluster have and the proxy does not read.
func realistic(m *metav1.ObjectMeta) {
	const fields = `{"f:metadata":{"f:annotations":{".":{},"f:endpoints.kubernetes.io/last-change-trigger-time":{}},"f:generateName":{},` +
		`"f:labels":{".":{},"f:app":{},"f:endpointslice.kubernetes.io/managed-by":{}},"f:ownerReferences":{".":{},"k:{\"uid\":\"1\"}":{}}},"f:spec":{}}`
	m.UID, m.ResourceVersion, m.CreationTimestamp = "6f1e7c1a-0000-4000-8000-000000000000", "1234567", metav1.Unix(1_760_000_000, 0)
	if m.Labels == nil {
		m.Labels = map[string]string{}
	}
	m.Labels["app"], m.Labels["app.kubernetes.io/managed-by"] = m.Name, "Helm"
	m.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Service", Name: m.Name, UID: m.UID}}
	m.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kube-controller-manager", Operation: metav1.ManagedFieldsOperationUpdate,
		APIVersion: "v1", Time: &m.CreationTimestamp, FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(fields)}}
}

// BenchmarkDecode decodes a Service, and EndpointSlices. Ours may use the memory of an object again, as takeList lets it.
func BenchmarkDecode(b *testing.B) {
	objects := map[string]runtime.Object{"service": realisticService(0), "slice of 1": realisticSlice(0, 1), "slice of 50": realisticSlice(0, 50)}
	theirs, ours := serializers(b)
	for name, object := range objects {
		whole := encode(b, theirs.Serializer, object)
		data := make([]byte, len(whole)) // a buffer, which decoding overwrites
		for by, serializer := range map[string]runtime.Serializer{"theirs": theirs.Serializer, "ours": ours.Serializer} {
			b.Run(name+"/"+by, func(b *testing.B) {
				b.ReportAllocs()
				b.SetBytes(int64(len(whole)))
				for b.Loop() {
					copy(data, whole)
					if _, _, err := serializer.Decode(data, nil, nil); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// stream returns the response to a streaming list of objects in protobuf, with the bookmark at its end.
func stream(b *testing.B, objects []runtime.Object, bookmark runtime.Object) []byte {
	b.Helper()
	theirs, _ := serializers(b)
	var response bytes.Buffer
	frames := theirs.StreamSerializer.NewFrameWriter(&response)
	send := func(kind watch.EventType, object runtime.Object) {
		event := &metav1.WatchEvent{Type: string(kind), Object: runtime.RawExtension{Raw: encode(b, theirs.Serializer, object)}}
		if _, err := frames.Write(encode(b, theirs.StreamSerializer, event)); err != nil {
			b.Fatal(err)
		}
	}
	for _, object := range objects {
		send(watch.Added, object)
	}
	send(watch.Bookmark, bookmark)
	return response.Bytes()
}

// realisticService returns a Service as it is in a cluster.
func realisticService(i int) *corev1.Service {
	s := service(fmt.Sprintf("service-%06d", i))
	realistic(&s.ObjectMeta)
	s.Spec.ClusterIP = netip.AddrFrom4([4]byte{10, 96 + byte(i>>16), byte(i >> 8), byte(i)}).String()
	s.Spec.ClusterIPs = []string{s.Spec.ClusterIP}
	s.Spec.Selector = map[string]string{"app": s.Name}
	s.Spec.Ports[0].TargetPort = intstr.FromInt32(8080)
	s.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Service"))
	return s
}

// realisticSlice returns the EndpointSlice of a Service as it is in a cluster.
func realisticSlice(i, endpoints int) *discoveryv1.EndpointSlice {
	e := slice(fmt.Sprintf("service-%06d", i), endpoints)
	realistic(&e.ObjectMeta)
	e.Annotations = map[string]string{corev1.EndpointsLastChangeTriggerTime: "2026-11-22T10:00:00Z"}
	for j := range e.Endpoints {
		n := i*endpoints + j
		of := &e.Endpoints[j]
		of.Addresses[0] = netip.AddrFrom4([4]byte{10, 128 + byte(n>>16), byte(n >> 8), byte(n)}).String()
		of.Conditions = discoveryv1.EndpointConditions{Ready: new(true), Serving: new(true), Terminating: new(false)}
		of.NodeName, of.Zone = new(fmt.Sprintf("node-%05d", n%5000)), new(fmt.Sprintf("zone-%d", n%3))
		of.TargetRef = &corev1.ObjectReference{Kind: "Pod", Namespace: "ns", Name: fmt.Sprintf("%s-5d8c7b9f4-%05d", e.Name, n), UID: e.UID}
	}
	e.SetGroupVersionKind(discoveryv1.SchemeGroupVersion.WithKind("EndpointSlice"))
	return e
}

// BenchmarkFirstList starts a Source and waits until all lists are complete. The server sends prepared bytes.
func BenchmarkFirstList(b *testing.B) {
	for _, size := range []struct{ services, endpoints int }{{1000, 2}, {10000, 2}, {5000, 50}, {45000, 1}} {
		b.Run(fmt.Sprintf("%dx%d", size.services, size.endpoints), func(b *testing.B) {
			var services, slices []runtime.Object
			for i := range size.services {
				services, slices = append(services, realisticService(i)), append(slices, realisticSlice(i, size.endpoints))
			}
			end := metav1.ObjectMeta{ResourceVersion: "1234568", Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}}
			endOfServices, endOfSlices := &corev1.Service{ObjectMeta: end}, &discoveryv1.EndpointSlice{ObjectMeta: end}
			endOfServices.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Service"))
			endOfSlices.SetGroupVersionKind(discoveryv1.SchemeGroupVersion.WithKind("EndpointSlice"))
			responses := map[string][]byte{"/api/v1/services": stream(b, services, endOfServices),
				"/apis/discovery.k8s.io/v1/endpointslices": stream(b, slices, endOfSlices)}
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				response, known := responses[r.URL.Path]
				if !known {
					http.NotFound(w, r)
					return
				}
				w.Header().Set("Content-Type", apiclient.Protobuf+";stream=watch")
				_, _ = w.Write(response) // the client may be gone
				w.(http.Flusher).Flush()
				<-r.Context().Done()
			}))
			defer server.Close()
			b.ReportAllocs()
			for b.Loop() {
				ctx, cancel := context.WithCancel(klog.NewContext(b.Context(), logr.Discard()))
				s, err := New(&rest.Config{Host: server.URL}, "n1", Options{})
				if err != nil {
					b.Fatal(err)
				}
				builder := cluster.NewBuilder("n1")
				ended := make(chan error)
				go func() { ended <- s.Run(ctx, builder) }()
				<-s.Complete()
				if n := builder.Snapshot().Services.Len(); n != size.services || builder.Endpoints() != size.services*size.endpoints {
					b.Fatalf("%d Services, %d endpoints", n, builder.Endpoints())
				}
				cancel()
				if err := <-ended; err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
