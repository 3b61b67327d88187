package check

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// health asks the proxy whether it serves.
func health(ctx context.Context, c *checker) []finding {
	if c.node.HealthzAddress == "" {
		return warn("healthzBindAddress is empty: the proxy cannot be asked for its health", "Set healthzBindAddress.")
	}
	status, body, err := c.doors.Get(ctx, c.node.HealthzAddress, "/healthz")
	switch {
	case err != nil:
		return fail("the proxy does not answer: "+err.Error(), "See whether it runs, and its log.")
	case status != http.StatusOK:
		return fail(fmt.Sprintf("/healthz answers %d: %s", status, firstLine(body)), "See the log of kube-proxy for failed syncs, and whether the Node is being deleted.")
	}
	return ok("/healthz answers " + fmt.Sprint(status))
}

// longest bounds what is shown of an answer.
const longest = 300

func firstLine(body string) string {
	text := strings.Join(strings.Fields(body), " ")
	if len(text) > longest {
		return strings.ToValidUTF8(text[:longest], "") + "..."
	}
	return text
}

// mode asks the proxy for its mode.
func mode(ctx context.Context, c *checker) []finding {
	if c.node.MetricsAddress == "" {
		return nil
	}
	status, body, err := c.doors.Get(ctx, c.node.MetricsAddress, "/proxyMode")
	switch {
	case err != nil || status != http.StatusOK:
		return warn(fmt.Sprintf("%s/proxyMode does not answer", c.node.MetricsAddress), "See whether the metrics server runs.")
	case strings.TrimSpace(body) != c.node.Mode:
		return fail(fmt.Sprintf("the proxy runs in mode %s, not %s", firstLine(body), c.node.Mode), "Correct mode in the configuration and restart the proxy, or name the mode of the check with --proxy-mode.")
	}
	return ok("the proxy runs in mode " + c.node.Mode)
}

func inForce(ctx context.Context, c *checker) []finding {
	present, err := c.doors.Present(ctx)
	switch {
	case err != nil:
		return warn("cannot look for rules: "+err.Error(), "Run the check with CAP_NET_ADMIN.")
	case !slices.Contains(present, c.node.Mode):
		return fail("there are no rules of mode "+c.node.Mode, "See the log of kube-proxy for a failed sync, and /healthz for what it waits for.")
	}
	return ok("rules of mode " + c.node.Mode + " are in force")
}
