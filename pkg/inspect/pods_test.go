package inspect

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// server is an API server with a pod and an EndpointSlice.
type server struct {
	// forbids refuses to return pods.
	forbids bool
}

func (s server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	meta := metav1.ObjectMeta{Namespace: "shop", Name: "web-0"}
	code, answer := http.StatusOK, any(nil)
	refuse := func(err *apierrors.StatusError) {
		err.ErrStatus.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
		code, answer = int(err.ErrStatus.Code), err.ErrStatus
	}
	pods := corev1.Resource("pods")
	switch name, isPod := strings.CutPrefix(r.URL.Path, "/api/v1/namespaces/shop/pods/"); {
	case isPod && s.forbids:
		refuse(apierrors.NewForbidden(pods, name, nil))
	case isPod && name != "web-0":
		refuse(apierrors.NewNotFound(pods, name))
	case isPod:
		answer = &corev1.Pod{TypeMeta: metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}, ObjectMeta: meta,
			Status: corev1.PodStatus{PodIPs: []corev1.PodIP{{IP: "10.244.1.2"}, {IP: "fd00::2"}}}}
	case r.URL.Path == "/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices":
		answer = &discoveryv1.EndpointSliceList{TypeMeta: metav1.TypeMeta{Kind: "EndpointSliceList", APIVersion: "discovery.k8s.io/v1"},
			Items: []discoveryv1.EndpointSlice{{ObjectMeta: meta, Endpoints: []discoveryv1.Endpoint{
				{Addresses: []string{"10.244.1.9"}, TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: "other"}},
				{Addresses: []string{"10.244.1.3"}, TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: "web-0"}}}}}}
	default:
		code = http.StatusBadRequest
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(answer)
}

// TestPodAddress finds a pod by itself, and without the right to read pods by an EndpointSlice.
func TestPodAddress(t *testing.T) {
	for _, test := range []struct {
		server    server
		name      string
		six       bool
		want, err string
	}{
		{server{}, "web-0", false, "10.244.1.2", ""},
		{server{}, "web-0", true, "fd00::2", ""},
		{server{}, "web-1", false, "", `pods "web-1" not found`},
		{server{forbids: true}, "web-0", false, "10.244.1.3", ""},
		{server{forbids: true}, "web-0", true, "", "has no IPv6 address yet"},
		{server{forbids: true}, "web-1", false, "", "give the pod's IP address"},
	} {
		api := httptest.NewServer(test.server)
		var got string
		pod, err := FindPod(t.Context(), &rest.Config{Host: api.URL}, "shop", test.name)
		if err == nil {
			got, err = pod.Address(test.six)
		}
		api.Close()
		if got != test.want || (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
			t.Errorf("%s, IPv6 %v: got %q, %v; want %q, %q", test.name, test.six, got, err, test.want, test.err)
		}
	}
}
