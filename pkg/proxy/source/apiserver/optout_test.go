package apiserver

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestManagedFields asks servers of each kind to leave managedFields out: one that does, one that ignores the request, and one
// that refuses it, which is not asked again.
func TestManagedFields(t *testing.T) {
	const asks = "drop=metadata.managedFields"
	refuse := func(f *fakeAPI) {
		f.refuse = func(r *http.Request) *metav1.Status {
			if !strings.Contains(r.Header.Get("Accept"), asks) {
				return nil
			}
			err := apierrors.NewGenericServerResponse(http.StatusNotAcceptable, "get", schema.GroupResource{}, "", "only plain types", 0, true)
			return &err.ErrStatus
		}
	}
	tests := map[string]struct {
		server func(*fakeAPI)
		off    bool
		whole  bool // objects come with managedFields
		asked  bool // at the end
	}{
		"the server does it":                 {server: func(f *fakeAPI) { f.drops = true }, asked: true},
		"in lists":                           {server: func(f *fakeAPI) { f.drops, f.noStreams = true, true }, asked: true},
		"in lists, JSON":                     {server: func(f *fakeAPI) { f.drops, f.noStreams, f.mediaType = true, true, runtime.ContentTypeJSON }, asked: true},
		"the server ignores it":              {server: func(*fakeAPI) {}, whole: true, asked: true},
		"the server refuses it":              {server: refuse, whole: true},
		"the server could, but is not asked": {server: func(f *fakeAPI) { f.drops = true }, off: true, whole: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api := newFakeAPI(t, test.server)
			api.put(realisticService(1), realisticSlice(1, 3))
			b := run(t, api, Options{DropManagedFields: !test.off}).complete()
			b.want("service-000001=3")
			api.put(realisticSlice(1, 4)) // the watch goes on
			b.want("service-000001=4")
			b.relisted(api.restart)
			b.want("service-000001=4")
			b.stop()
			api.mu.Lock()
			defer api.mu.Unlock()
			if (api.managed > 0) != test.whole {
				t.Errorf("%d objects came with managedFields", api.managed)
			}
			for resource, query := range api.lastQuery {
				if strings.Contains(query["accept"], asks) != test.asked {
					t.Errorf("%s were requested with %q", resource, query["accept"])
				}
			}
			for _, line := range b.log {
				if strings.Contains(line, "failed") {
					t.Errorf("logged %s", line)
				}
			}
		})
	}
}

// TestWithoutManagedFields keeps each media type as the second choice, and the order of the types.
func TestWithoutManagedFields(t *testing.T) {
	want := "a/b;stream=watch;drop=metadata.managedFields,a/b;stream=watch,c/d;drop=metadata.managedFields,c/d"
	if diff := cmp.Diff(want, withoutManagedFields("a/b;stream=watch,c/d")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
