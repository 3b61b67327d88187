package check

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/status/v1alpha1"
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
	var found []finding
	info, _ := c.info(ctx)
	if info.Sync != nil {
		for _, family := range info.Sync.Families {
			if family.Error != "" {
				found = append(found, fail(fmt.Sprintf("the last sync failed in %s: %s", family.Family, firstLine(family.Error)),
					"Correct what the message says. What was in force in this family stays so, if anything was: kube-proxy render --diff shows what is missing.")...)
			}
		}
	}
	if len(found) == 0 {
		return ok("rules of mode " + c.node.Mode + " are in force")
	}
	return found
}

// observed asks the proxy for the problems of Services that only it knows.
func observed(ctx context.Context, c *checker) []finding {
	info, known := c.info(ctx)
	if !known {
		return nil
	}
	var found []finding
	for _, reason := range slices.Sorted(maps.Keys(info.Observed)) {
		found = append(found, warn(fmt.Sprintf("Services with the problem %s: %d", reason, info.Observed[reason]), "See kube-proxy service list -A, and kube-proxy service describe.")...)
	}
	if len(found) == 0 {
		return ok("no rules are refused or delayed, and all health check node ports are served")
	}
	return found
}

// info asks the proxy for its description. It is not known of another proxy.
func (c *checker) info(ctx context.Context) (info v1alpha1.Info, known bool) {
	if c.node.MetricsAddress == "" {
		return info, false
	}
	status, body, err := c.doors.Get(ctx, c.node.MetricsAddress, v1alpha1.Path+"/info")
	known = err == nil && status == http.StatusOK && json.Unmarshal([]byte(body), &info) == nil
	return info, known
}
