package announce

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// nodeServer is an API nodeServer with one Node. It is a transport, so that a test in a bubble of synctest has no connection.
type nodeServer struct {
	mu     sync.Mutex
	taints []corev1.Taint
	// gone: there is no Node. refusals are how many patches are forbidden.
	gone     bool
	refusals int
	// race is called before a patch is applied.
	race  func(s *nodeServer)
	lists int
	patch int
}

func (s *nodeServer) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	s.mu.Lock()
	defer s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	refuse := func(err *apierrors.StatusError) {
		err.ErrStatus.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
		w.WriteHeader(int(err.ErrStatus.Code))
		_ = json.NewEncoder(w).Encode(err.ErrStatus)
	}
	switch {
	case r.Method == http.MethodGet && r.URL.Path == "/api/v1/nodes" && r.URL.Query().Get("fieldSelector") == "metadata.name=n1":
		s.lists++
		list := corev1.NodeList{TypeMeta: metav1.TypeMeta{Kind: "NodeList", APIVersion: "v1"}}
		if !s.gone {
			list.Items = []corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Spec: corev1.NodeSpec{Taints: s.taints}}}
		}
		_ = json.NewEncoder(w).Encode(list)
	case r.Method == http.MethodPatch && r.URL.Path == "/api/v1/nodes/n1" && r.Header.Get("Content-Type") == "application/json-patch+json":
		s.patch++
		if s.refusals > 0 {
			s.refusals--
			refuse(apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "n1", fmt.Errorf("no rights")))
			break
		}
		if race := s.race; race != nil {
			s.race = nil
			race(s)
		}
		if err := s.apply(r.Body); err != nil {
			refuse(apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schema.GroupResource{}, "", err.Error(), 0, false))
			break
		}
		_ = json.NewEncoder(w).Encode(corev1.Node{TypeMeta: metav1.TypeMeta{Kind: "Node", APIVersion: "v1"}})
	default:
		w.WriteHeader(http.StatusBadRequest)
	}
	return w.Result(), nil
}

// apply applies a patch as the API nodeServer does.
func (s *nodeServer) apply(body io.Reader) error {
	text, _ := io.ReadAll(body)
	before, _ := json.Marshal(corev1.Node{Spec: corev1.NodeSpec{Taints: s.taints}})
	patch, err := jsonpatch.DecodePatch(text)
	if err != nil {
		return err
	}
	after, err := patch.Apply(before)
	if err != nil {
		return err
	}
	var node corev1.Node
	err = json.Unmarshal(after, &node)
	s.taints = node.Spec.Taints
	return err
}

func (s *nodeServer) left() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []string
	for _, t := range s.taints {
		all = append(all, (&Taint{t.Key, t.Value, string(t.Effect)}).String())
	}
	return strings.Join(all, " ")
}

// recorder keeps the reasons of Events.
type recorder struct {
	mu      sync.Mutex
	reasons []string
}

func (r *recorder) Event(e proxy.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reasons = append(r.reasons, e.Reason)
}

// start runs a Remover of startup=yes:NoSchedule until the end of the test.
func start(t *testing.T, s *nodeServer) (*TaintRemover, *recorder) {
	t.Helper()
	events := &recorder{}
	r, err := NewTaintRemover(&rest.Config{Host: "http://api", Transport: s, QPS: -1}, "n1", Taint{"startup", "yes", "NoSchedule"}, events)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { _ = r.Run(ctx); close(done) }()
	t.Cleanup(func() { cancel(); <-done })
	return r, events
}

var (
	startup = corev1.Taint{Key: "startup", Value: "yes", Effect: "NoSchedule"}
	others  = []corev1.Taint{{Key: "startup", Value: "yes", Effect: "NoExecute", TimeAdded: new(metav1.Now().Rfc3339Copy())}, {Key: "gpu", Effect: "NoSchedule"}}
)

// existing is a Node that exists, none one that does not.
func existing() *cluster.Node { return &cluster.Node{Exists: true, UID: "1"} }
func none() *cluster.Node     { return &cluster.Node{} }

const kept = "startup=yes:NoExecute gpu:NoSchedule"

// TestRemoves removes the taint after the first sync that serves the Node in all families, and nothing else.
func TestRemoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &nodeServer{taints: slices.Insert(slices.Clone(others), 1, startup)}
		r, events := start(t, s)
		r.synced(none(), nil) // the Node is not registered yet
		r.synced(existing(), fmt.Errorf("busy"))
		synctest.Wait()
		if s.lists != 0 {
			t.Errorf("the Node was read %d times before it was served", s.lists)
		}
		for range 3 {
			r.synced(existing(), nil)
			synctest.Wait()
		}
		if s.left() != kept || s.lists != 1 || s.patch != 1 || fmt.Sprint(events.reasons) != "[StartupTaintRemoved]" {
			t.Errorf("left are %s, after %d lists and %d patches; events %v", s.left(), s.lists, s.patch, events.reasons)
		}
		// The Node is deleted and registered again.
		s.taints = []corev1.Taint{startup}
		r.synced(none(), nil)
		r.synced(existing(), nil)
		synctest.Wait()
		if s.left() != "" || s.patch != 2 {
			t.Errorf("left are %s", s.left())
		}
		// Once more, between two syncs.
		s.taints = []corev1.Taint{startup}
		r.synced(&cluster.Node{Exists: true, UID: "2"}, nil)
		synctest.Wait()
		if s.left() != "" || s.patch != 3 {
			t.Errorf("left of another Node are %s", s.left())
		}
	})
}

// TestLeavesOthers has Nodes without the taint: one request, and no change.
func TestLeavesOthers(t *testing.T) {
	for name, s := range map[string]*nodeServer{
		"no taints":     {},
		"other taints":  {taints: others},
		"another value": {taints: []corev1.Taint{{Key: "startup", Value: "no", Effect: "NoSchedule"}}},
		"no Node":       {gone: true},
	} {
		synctest.Test(t, func(t *testing.T) {
			before := s.left()
			r, events := start(t, s)
			r.synced(existing(), nil)
			time.Sleep(time.Hour)
			synctest.Wait()
			if s.left() != before || s.lists != 1 || s.patch != 0 || len(events.reasons) > 0 {
				t.Errorf("%s: left are %s, after %d lists and %d patches; events %v", name, s.left(), s.lists, s.patch, events.reasons)
			}
		})
	}
}

// TestTaintRetries lets the list of taints change between the reading and the patch, and then lacks the right for a while.
func TestTaintRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &nodeServer{taints: append(slices.Clone(others), startup), race: func(s *nodeServer) { s.taints = append([]corev1.Taint{startup}, others...) }}
		r, events := start(t, s)
		r.synced(existing(), nil)
		time.Sleep(time.Minute)
		synctest.Wait()
		if s.left() != kept || s.patch != 2 || fmt.Sprint(events.reasons) != "[StartupTaintRemoved]" {
			t.Errorf("after a conflict: left are %s after %d patches; events %v", s.left(), s.patch, events.reasons)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		s := &nodeServer{taints: []corev1.Taint{startup}, refusals: 10}
		r, events := start(t, s)
		r.synced(existing(), nil)
		time.Sleep(time.Hour)
		synctest.Wait()
		if s.left() != "" || s.patch != 11 || fmt.Sprint(events.reasons) != "[FailedToRemoveStartupTaint StartupTaintRemoved]" {
			t.Errorf("without the right at first: left are %s after %d patches; events %v", s.left(), s.patch, events.reasons)
		}
	})
}

// TestSet has flags that are taints, and others.
func TestSet(t *testing.T) {
	for text, valid := range map[string]bool{
		"": true, "a:NoSchedule": true, "example.com/a=b:NoExecute": true, "a=:PreferNoSchedule": true,
		"a": false, "a=b": false, ":NoSchedule": false, "a:Never": false, "a b:NoSchedule": false, "a=b c:NoSchedule": false, "a:NoSchedule:x": false,
	} {
		var taint Taint
		err := taint.Set(text)
		if (err == nil) != valid || valid && taint.String() != strings.ReplaceAll(text, "=:", ":") {
			t.Errorf("%q: %q, %v", text, &taint, err)
		}
	}
}
