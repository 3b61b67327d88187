package pods

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// TestAddress finds a pod by itself, and without the right to read pods by an EndpointSlice.
func TestAddress(t *testing.T) {
	meta := metav1.ObjectMeta{Namespace: "shop", Name: "web-0"}
	pod := &corev1.Pod{ObjectMeta: meta, Status: corev1.PodStatus{PodIPs: []corev1.PodIP{{IP: "10.244.1.2"}, {IP: "fd00::2"}}}}
	slice := &discoveryv1.EndpointSlice{ObjectMeta: meta, Endpoints: []discoveryv1.Endpoint{
		{Addresses: []string{"10.244.1.9"}, TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: "other"}},
		{Addresses: []string{"10.244.1.3"}, TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: "web-0"}}}}
	forbidden := fake.NewClientset(slice)
	forbidden.PrependReactor("get", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "web-0", nil)
	})
	for _, test := range []struct {
		client    *fake.Clientset
		name      string
		six       bool
		want, err string
	}{
		{fake.NewClientset(pod), "web-0", false, "10.244.1.2", ""},
		{fake.NewClientset(pod), "web-0", true, "fd00::2", ""},
		{fake.NewClientset(pod), "web-1", false, "", `pods "web-1" not found`},
		{forbidden, "web-0", false, "10.244.1.3", ""},
		{forbidden, "web-0", true, "", "has no IPv6 address yet"},
		{forbidden, "web-1", false, "", "give the pod's IP address"},
	} {
		var got string
		pod, err := Get(t.Context(), test.client, "shop", test.name)
		if err == nil {
			got, err = pod.Address(test.six)
		}
		if got != test.want || (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
			t.Errorf("%s, IPv6 %v: got %q, %v; want %q, %q", test.name, test.six, got, err, test.want, test.err)
		}
	}
}
