package view

import (
	"fmt"
	"net/http"
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/serve"
)

// answerTimeout bounds one request: a list of 45,000 Services takes about a second.
const answerTimeout = 30 * time.Second

// LocalOnly returns a handler that passes only the requests of a local user on: GET and HEAD, from this machine, to one of
// its own names. All others get an error. Responses are not stored and not shared with other web pages, and a client that
// does not read its response is disconnected.
func LocalOnly(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Set("Cache-Control", "no-store")
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("Cross-Origin-Resource-Policy", "same-origin")
		if err := guard(r); err != nil {
			if err.code == http.StatusMethodNotAllowed {
				header.Set("Allow", "GET, HEAD")
			}
			fail(w, err)
			return
		}
		// Without a deadline a client that does not read would hold the response in memory. The error means that the
		// connection cannot have one.
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(answerTimeout))
		handler.ServeHTTP(w, r)
	})
}

// guard rejects requests that are not a local user's: of other methods than GET and HEAD, from other machines and pods
// (the address may be one that the whole network reaches, for metrics), and those that a web page sends through a name
// that it has pointed to this address (DNS rebinding).
func guard(r *http.Request) *httpError {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return &httpError{http.StatusMethodNotAllowed, "this address is read-only: use GET"}
	}
	if !serve.FromThisMachine(r) {
		return &httpError{http.StatusForbidden, "only local clients are served: run the command on the node, in the pod (kubectl exec), or through kubectl port-forward"}
	}
	if !serve.ToOwnAddress(r) {
		return &httpError{http.StatusMisdirectedRequest, fmt.Sprintf("the Host header %q is neither localhost nor the address of this server", r.Host)}
	}
	return nil
}
