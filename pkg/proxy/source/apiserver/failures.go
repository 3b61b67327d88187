package apiserver

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// complaints tells a person why a resource cannot be had: once, and again every few minutes while it lasts.
// A Reflector that tries again every second would fill the log.
type complaints struct {
	resource *resource
	progress *progress
	logger   klog.Logger
	clock    clock.PassiveClock

	mu   sync.Mutex
	told string
	at   time.Time
}

// again is the time after which a complaint is repeated.
const again = 5 * time.Minute

// note is told how every request went.
func (c *complaints) note(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		c.progress.failed(c.resource.name, "")
		if c.told != "" {
			c.logger.Info("The API server answers again")
			c.told = ""
		}
		return
	}
	what, hint := advice(err, c.resource)
	if hint != "" {
		c.progress.failed(c.resource.name, what)
	}
	if hint == "" || what == c.told && c.clock.Since(c.at) < again {
		c.logger.V(4).Info("A request failed and is repeated", "reason", err)
		return
	}
	c.told, c.at = what, c.clock.Now()
	c.logger.Error(err, "List or watch failed; keeping the last known state", "hint", hint)
}

// advice sorts errors by what can be done about them, and says that. There is no hint where nothing need be
// done.
func advice(err error, r *resource) (what, hint string) {
	switch {
	case errors.Is(err, context.Canceled), isExpired(err):
		return "normal", ""
	case apierrors.IsUnauthorized(err):
		return "unauthorized", "the credentials are not accepted: renew the token or certificate that the kubeconfig names"
	case apierrors.IsForbidden(err):
		return "forbidden", fmt.Sprintf("allow list and watch of %s: bind the ClusterRole system:node-proxier to the proxy's user", r.name)
	case apierrors.IsNotFound(err) && r.optional:
		return "missing", ""
	case apierrors.IsNotFound(err):
		return "missing", fmt.Sprintf("the server does not know %s of %s: check that its address leads to a Kubernetes API server", r.name, r.version)
	case apierrors.IsTooManyRequests(err):
		return "busy", "the API server has too much to do; it will be asked again later"
	}
	return "unreachable", "the API server cannot be reached or has a fault: check its address in the kubeconfig, and the way there"
}

// isMissing tells that a resource is not to be had from this server, however often it is asked.
func isMissing(err error) bool { return apierrors.IsNotFound(err) || apierrors.IsForbidden(err) }

// isExpired tells that the server has forgotten where a watch or list was to go on (410 Gone).
func isExpired(err error) bool { return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) }

// isRefusal tells that the server did not accept the request's options.
func isRefusal(err error) bool { return apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) }
