package apiserver

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"

	"github.com/seed-11a05479/kube-proxy/pkg/logonce"
)

// failures logs why resources cannot be listed or watched. Reflectors retry every few seconds and would fill the log, so
// each cause is logged once, and again every few minutes while it lasts: a cause that lies with the server or the
// credentials once for all resources, a cause that lies with a resource once for it.
type failures struct {
	logger klog.Logger // set before the first request
	// changed is called when the cause of a resource changes; the cause is empty if there is none.
	changed func(resource, cause string)

	mu sync.Mutex
	// causes holds the current cause of each request that fails, hints by resource the last one, and what the user can do about it.
	causes map[request]cause
	hints  map[string]failure
	logged logonce.Conditions[cause]
	// unlisted are the resources whose first list has not arrived, in the order of the requests.
	unlisted []string
}

// failure is the kind of a cause, and what the user can do about it.
type failure struct{ kind, hint string }

// request is what a Reflector asks for again until it succeeds.
type request struct{ verb, resource string }

// The verbs. A list that the server streams is a watch.
const (
	listVerb  = "list"
	watchVerb = "watch"
)

// cause is why a request failed. The resource is empty if all resources are affected.
type cause struct{ kind, resource string }

func newFailures(all []*resource, options *Options) *failures {
	f := &failures{changed: options.OnFailure, causes: map[request]cause{}, hints: map[string]failure{}, logged: logonce.Conditions[cause]{Again: logonce.Reminder}}
	for _, r := range all {
		f.unlisted = append(f.unlisted, r.Name)
	}
	if f.changed == nil {
		f.changed = func(string, string) {}
	}
	return f
}

// note records the result of a request for a resource.
func (f *failures) note(r *resource, verb string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err == nil {
		f.succeeded(r, verb)
		return
	}
	if r.optional && apierrors.IsNotFound(err) { // the server answers, and its answer ends all failures
		f.succeeded(r, watchVerb)
	}
	why, hint := advice(err, r)
	if hint == "" {
		f.logger.V(4).Info("Request failed; retrying", "verb", verb, "resource", r.Name, "reason", err)
		return
	}
	if of := (request{verb, r.Name}); f.causes[of] != why {
		f.causes[of] = why
		f.changed(r.Name, why.kind)
	}
	f.hints[r.Name] = failure{why.kind, hint}
	if !f.logged.Changed(why, why.kind) {
		f.logger.V(4).Info("Request failed again; retrying", "verb", verb, "resource", r.Name, "reason", err)
		return
	}
	f.logger.Error(err, "List or watch failed; keeping the last known state", "resource", r.Name, "hint", hint)
}

// succeeded records a success. A watch that succeeds follows a list or contains one, so it ends all failures of the
// resource; a list that succeeds does not end those of its watch.
func (f *failures) succeeded(r *resource, verb string) {
	was, failed := f.causes[request{verb, r.Name}]
	delete(f.causes, request{verb, r.Name})
	if verb == watchVerb {
		if c, ok := f.causes[request{listVerb, r.Name}]; ok {
			was, failed = c, true
			delete(f.causes, request{listVerb, r.Name})
		}
	}
	if !failed || f.fails(func(of request, _ cause) bool { return of.resource == r.Name }) {
		return
	}
	delete(f.hints, r.Name)
	f.changed(r.Name, "")
	if f.fails(func(_ request, c cause) bool { return c == was }) {
		return
	}
	// Causes may have followed each other, as when a server restarts.
	all := len(f.causes) == 0
	f.logged.EndedExcept(func(c cause) bool { return c != was && c.resource != r.Name && (!all || c.resource != "") })
	f.logger.Info("List and watch succeed again", "resource", r.Name, "failure", was.kind)
}

// listed records that a resource has been listed completely.
func (f *failures) listed(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.unlisted = slices.DeleteFunc(f.unlisted, func(unlisted string) bool { return unlisted == name })
}

// missing describes the resources that have not been listed yet, such as "the API server to list services (unreachable), nodes"; "" if there
// are none. The hint is for the first one that failed; "" if none did.
func (f *failures) missing() (what, hint string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []string
	for _, name := range f.unlisted {
		if why, failed := f.hints[name]; failed {
			name, hint = fmt.Sprintf("%s (%s)", name, why.kind), cmp.Or(hint, why.hint)
		}
		all = append(all, name)
	}
	if len(all) == 0 {
		return "", ""
	}
	return "the API server to list " + strings.Join(all, ", "), hint
}

// fails reports whether a request fails with a cause that match accepts.
func (f *failures) fails(match func(request, cause) bool) bool {
	for of, c := range f.causes {
		if match(of, c) {
			return true
		}
	}
	return false
}

// advice classifies an error and returns what the user can do about it. The hint is empty if nothing has to be done.
func advice(err error, r *resource) (why cause, hint string) {
	ofResource, ofServer := func(kind string) cause { return cause{kind, r.Name} }, func(kind string) cause { return cause{kind: kind} }
	untrusted, large, slow := (*tls.CertificateVerificationError)(nil), (*tooLargeError)(nil), (*tooSlowError)(nil)
	foreign, syntax, negotiated := (*foreignError)(nil), (*json.SyntaxError)(nil), runtime.NegotiateError{}
	switch {
	case errors.Is(err, context.Canceled), isExpired(err):
		return cause{}, ""
	case errors.As(err, &large):
		return ofResource("oversized"), fmt.Sprintf("no cluster needs this: look for what is wrong in the output of \"kubectl get --raw\" for %s, and at what is between this node and the API server", r.Name)
	case errors.As(err, &slow):
		return ofServer("slow"), "the API server sends hardly anything: check its load, the network, and what is between this node and the API server"
	case apierrors.IsUnauthorized(err):
		return ofServer("unauthorized"), "the credentials are not accepted: renew the token or certificate in the kubeconfig"
	case apierrors.IsForbidden(err):
		return ofResource("forbidden"), fmt.Sprintf("allow list and watch of %s: bind the ClusterRole system:node-proxier to the proxy's user", r.Name)
	case apierrors.IsNotFound(err) && r.optional:
		return cause{}, ""
	case apierrors.IsNotFound(err):
		return ofResource("missing"), fmt.Sprintf("the server does not know %s of %s: check that its address leads to a Kubernetes API server", r.Name, r.Version)
	case errors.As(err, &foreign), errors.As(err, &syntax), errors.As(err, &negotiated):
		return ofServer("missing"), "this is no API server's answer: check that its address leads to a Kubernetes API server, and what is between"
	case apierrors.IsTooManyRequests(err):
		return ofServer("busy"), "the API server is overloaded; the request will be retried"
	case errors.As(err, &untrusted):
		return ofServer("untrusted"), "the API server's certificate is not trusted: check the certificate authority in the kubeconfig, or the file that it names"
	case apierrors.IsInternalError(err), apierrors.IsServiceUnavailable(err), apierrors.IsServerTimeout(err), apierrors.IsTimeout(err), apierrors.IsUnexpectedServerError(err):
		return ofServer("failing"), "the API server has an internal error: see its own log"
	}
	return ofServer("unreachable"), "the API server cannot be reached: check its address in the kubeconfig and the network"
}

// isMissing reports whether a resource is not available from this server, so that retrying soon is useless.
func isMissing(err error) bool { return apierrors.IsNotFound(err) || apierrors.IsForbidden(err) }

// isExpired reports whether the server no longer has the resource version of a watch or list (410 Gone).
func isExpired(err error) bool { return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) }

// isRefusal reports whether the server did not accept the request's options.
func isRefusal(err error) bool { return apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) }
