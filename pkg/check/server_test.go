package check

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/client-go/rest"
)

// answers is an API server that allows to list only, has the Node n1 and two pages of Services. It fails the test on any
// request that creates something but a review.
func answers(t *testing.T) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		reply := func(text string) { _, _ = w.Write([]byte(text)) }
		switch {
		case r.Method == http.MethodPost && r.URL.Path == "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews":
			var review struct {
				Spec struct {
					ResourceAttributes struct{ Verb, Group, Resource string }
				}
			}
			if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
				t.Error(err)
			}
			if review.Spec.ResourceAttributes.Resource == "broken" {
				w.WriteHeader(http.StatusForbidden)
				return
			}
			allowed := "false"
			if review.Spec.ResourceAttributes.Verb == "list" && review.Spec.ResourceAttributes.Group == "discovery.k8s.io" {
				allowed = "true"
			}
			reply(`{"kind":"SelfSubjectAccessReview","apiVersion":"authorization.k8s.io/v1","status":{"allowed":` + allowed + `}}`)
		case r.Method != http.MethodGet:
			t.Errorf("%s %s", r.Method, r.URL)
		case r.URL.Path == "/api/v1/nodes" && r.URL.Query().Get("fieldSelector") == "metadata.name=n1":
			reply(`{"kind":"NodeList","apiVersion":"v1","items":[{"metadata":{"name":"n1"},"status":{"addresses":[{"type":"ExternalIP","address":"198.51.100.1"},` +
				`{"type":"InternalIP","address":"192.0.2.1"},{"type":"InternalIP","address":"2001:db8::1"},{"type":"Hostname","address":"n1"}]}}]}`)
		case r.URL.Path == "/api/v1/nodes":
			reply(`{"kind":"NodeList","apiVersion":"v1","items":[]}`)
		case r.URL.Path == "/api/v1/services" && r.URL.Query().Get("continue") == "":
			reply(`{"kind":"ServiceList","apiVersion":"v1","metadata":{"continue":"2"},"items":[{"spec":{"healthCheckNodePort":31000}},{"spec":{}}]}`)
		case r.URL.Path == "/api/v1/services":
			reply(`{"kind":"ServiceList","apiVersion":"v1","items":[{"spec":{"healthCheckNodePort":31001}},{"spec":{"healthCheckNodePort":-1}},` +
				`{"spec":{"healthCheckNodePort":65535}},{"spec":{"healthCheckNodePort":65536}}]}`)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}
}

func TestServer(t *testing.T) {
	http := httptest.NewServer(answers(t))
	defer http.Close()
	s, err := NewAPI(&rest.Config{Host: http.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json", AcceptContentTypes: "application/json"}})
	if err != nil {
		t.Fatal(err)
	}
	for right, want := range map[Right]bool{
		{Verb: "list", Group: "discovery.k8s.io", Resource: "endpointslices"}: true, {Verb: "list", Resource: "nodes"}: false,
	} {
		if allowed, err := s.Allowed(t.Context(), right); allowed != want || err != nil {
			t.Errorf("%+v: %t, %v", right, allowed, err)
		}
	}
	if _, err := s.Allowed(t.Context(), Right{Verb: "list", Resource: "broken"}); err == nil || !strings.Contains(err.Error(), "review the right to list broken") {
		t.Errorf("an error of the server: %v", err)
	}
	addrs, found, err := s.NodeAddresses(t.Context(), "n1")
	if diff := cmp.Diff([]netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}, addrs, cmpopts.EquateComparable(netip.Addr{})); diff != "" || !found || err != nil {
		t.Errorf("%t, %v (-want +got):\n%s", found, err, diff)
	}
	if addrs, found, err := s.NodeAddresses(t.Context(), "n2"); found || err != nil || addrs != nil {
		t.Errorf("a Node that does not exist: %v, %t, %v", addrs, found, err)
	}
	ports, err := s.HealthCheckNodePorts(t.Context())
	if diff := cmp.Diff([]uint16{31000, 31001, 65535}, ports); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}
