package apiserver

import (
	"context"
	"errors"
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"

	"github.com/seed-11a05479/kube-proxy/pkg/logonce"
)

// failureLog logs why a resource cannot be listed or watched. A Reflector retries every few seconds and would fill the log.
type failureLog struct {
	resource *resource
	progress *progress
	logger   klog.Logger

	mu      sync.Mutex
	failing logonce.Condition
}

func newFailureLog(r *resource, p *progress, logger klog.Logger) *failureLog {
	return &failureLog{resource: r, progress: p, logger: logger, failing: logonce.Condition{Again: logonce.Reminder}}
}

// note records the result of a request.
func (f *failureLog) note(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err == nil {
		f.progress.failed(f.resource.name, "")
		if f.failing.Ended() {
			f.logger.Info("List or watch succeeded again")
		}
		return
	}
	what, hint := advice(err, f.resource)
	if hint != "" {
		f.progress.failed(f.resource.name, what)
	}
	if hint == "" || !f.failing.Changed(what) {
		f.logger.V(4).Info("Request failed; retrying", "reason", err)
		return
	}
	f.logger.Error(err, "List or watch failed; keeping the last known state", "hint", hint)
}

// advice classifies an error and returns what the user can do about it. The hint is empty if nothing has to be done.
func advice(err error, r *resource) (what, hint string) {
	switch {
	case errors.Is(err, context.Canceled), isExpired(err):
		return "normal", ""
	case apierrors.IsUnauthorized(err):
		return "unauthorized", "the credentials are not accepted: renew the token or certificate in the kubeconfig"
	case apierrors.IsForbidden(err):
		return "forbidden", fmt.Sprintf("allow list and watch of %s: bind the ClusterRole system:node-proxier to the proxy's user", r.name)
	case apierrors.IsNotFound(err) && r.optional:
		return "missing", ""
	case apierrors.IsNotFound(err):
		return "missing", fmt.Sprintf("the server does not know %s of %s: check that its address leads to a Kubernetes API server", r.name, r.version)
	case apierrors.IsTooManyRequests(err):
		return "busy", "the API server is overloaded; the request will be retried"
	}
	return "unreachable", "the API server cannot be reached or has an internal error: check its address in the kubeconfig and the network"
}

// isMissing reports whether a resource is not available from this server, so that retrying soon is useless.
func isMissing(err error) bool { return apierrors.IsNotFound(err) || apierrors.IsForbidden(err) }

// isExpired reports whether the server no longer has the resource version of a watch or list (410 Gone).
func isExpired(err error) bool { return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) }

// isRefusal reports whether the server did not accept the request's options.
func isRefusal(err error) bool { return apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) }
