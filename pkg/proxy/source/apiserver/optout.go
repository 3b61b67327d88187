package apiserver

import (
	"net/http"
	"strings"
	"sync/atomic"

	"k8s.io/klog/v2"
)

// optOut is a client's transport that asks the server to leave metadata.managedFields out of its answers (KEP-5958). A server that
// does not know the parameter ignores it or, if something in between is strict, refuses the request with 406 (Not Acceptable);
// then it is not asked any more.
type optOut struct {
	http.RoundTripper
	refused atomic.Bool
}

// RoundTrip implements http.RoundTripper.
func (t *optOut) RoundTrip(request *http.Request) (*http.Response, error) {
	if t.refused.Load() {
		return t.RoundTripper.RoundTrip(request)
	}
	asking := request.Clone(request.Context())
	asking.Header.Set("Accept", withoutManagedFields(request.Header.Get("Accept")))
	response, err := t.RoundTripper.RoundTrip(asking)
	if err != nil || response.StatusCode != http.StatusNotAcceptable {
		return response, err
	}
	_ = response.Body.Close() // the answer to the next request counts
	t.refused.Store(true)
	klog.FromContext(request.Context()).V(2).Info("The API server refuses to leave out managedFields; requesting whole objects")
	return t.RoundTripper.RoundTrip(request)
}

// WrappedRoundTripper lets client-go find the transport.
func (t *optOut) WrappedRoundTripper() http.RoundTripper { return t.RoundTripper }

// withoutManagedFields puts before each media type of an Accept header the same one without managedFields.
func withoutManagedFields(accept string) string {
	var types []string
	for mediaType := range strings.SplitSeq(accept, ",") {
		types = append(types, mediaType+";drop=metadata.managedFields", mediaType)
	}
	return strings.Join(types, ",")
}
