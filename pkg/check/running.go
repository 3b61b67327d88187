package check

import (
	"cmp"
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
func health(ctx context.Context, c *Checker) []Result {
	if c.Node.HealthzAddress == "" {
		return warn("healthzBindAddress is empty: the proxy cannot be asked for its health", "Set healthzBindAddress.")
	}
	status, body, err := c.Host.Get(ctx, c.Node.HealthzAddress, "/healthz")
	switch {
	case err != nil:
		return fail("the proxy does not answer: "+err.Error(), "See whether it runs, and its log.")
	case status != http.StatusOK:
		return fail(fmt.Sprintf("/healthz answers %d: %s", status, unhealthy(body)), "See the log of kube-proxy for failed syncs, and whether the Node is being removed.")
	}
	if why := reasons(body); len(why) > 0 {
		return warn("/healthz answers 200, and "+strings.Join(why, "; "), "See the log of kube-proxy for what to do about it.")
	}
	return ok("/healthz answers 200")
}

// unhealthy says in words what an answer of /healthz means; an answer that is not understood is shown.
func unhealthy(body string) string {
	return cmp.Or(strings.Join(reasons(body), "; "), firstLine(body))
}

// reasons returns what an answer of /healthz names: why the proxy does not serve, and what it waits for.
func reasons(body string) []string {
	var answer struct {
		NodeEligible *bool
		Status       map[string]struct {
			LastUpdated any // null before the first success
			Healthy     bool
			Error       string
		}
		Broken     []string
		WaitingFor any // a list; the name of another process while this one waits for the lock
	}
	if json.Unmarshal([]byte(body), &answer) != nil {
		return nil
	}
	why := answer.Broken
	switch waiting := answer.WaitingFor.(type) {
	case string:
		why = append(why, "it waits: "+waiting)
	case []any:
		for _, each := range waiting {
			why = append(why, fmt.Sprintf("it waits for %v", each))
		}
	}
	for _, family := range slices.Sorted(maps.Keys(answer.Status)) {
		if one := answer.Status[family]; one.Error != "" {
			why = append(why, family+": "+one.Error)
		} else if one.LastUpdated == nil && !one.Healthy {
			why = append(why, family+": no sync has succeeded yet")
		} else if !one.Healthy {
			why = append(why, family+": the last sync was too long ago")
		}
	}
	if answer.NodeEligible != nil && !*answer.NodeEligible {
		why = append(why, "the Node is being deleted, or the cluster autoscaler is about to")
	}
	return why
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
func mode(ctx context.Context, c *Checker) []Result {
	if c.Node.MetricsAddress == "" {
		return nil
	}
	status, body, err := c.Host.Get(ctx, c.Node.MetricsAddress, "/proxyMode")
	switch {
	case err != nil || status != http.StatusOK:
		return warn(fmt.Sprintf("%s/proxyMode does not answer", c.Node.MetricsAddress), "See whether the metrics server runs.")
	case strings.TrimSpace(body) != c.Node.Mode:
		return fail(fmt.Sprintf("the proxy runs in mode %s, not %s", firstLine(body), c.Node.Mode), "Correct mode in the configuration and restart the proxy, or name the mode of the check with --proxy-mode.")
	}
	return ok("the proxy runs in mode " + c.Node.Mode)
}

func inForce(ctx context.Context, c *Checker) []Result {
	present, err := c.Host.Present(ctx)
	switch {
	case err != nil:
		return warn("cannot look for rules: "+err.Error(), "Run the check with CAP_NET_ADMIN.")
	case !slices.Contains(present, c.Node.Mode):
		return fail("there are no rules of mode "+c.Node.Mode, "See the log of kube-proxy for a failed sync, and /healthz for what it waits for.")
	}
	var found []Result
	info, known := c.info(ctx)
	if known && info.Sync == nil {
		return warn("there are rules of mode "+c.Node.Mode+", but the proxy has not finished a sync yet: they may be those of an earlier one", "See proxy/health for what it waits for.")
	}
	for _, family := range info.Sync.Failed() {
		found = append(found, fail(firstLine(family.Failure()),
			"Correct what the message says. What was in force in this family stays so, if anything was: kube-proxy render --diff shows what is missing.")...)
	}
	return or(found, "rules of mode "+c.Node.Mode+" are in force")
}

// inputs asks the proxy what is wrong with the files that it reads, and with its settings.
func inputs(ctx context.Context, c *Checker) []Result {
	info, known := c.info(ctx)
	if !known {
		return nil
	}
	var found []Result
	for _, problem := range info.Problems {
		if problem.Reason == v1alpha1.ReasonDataplane {
			found = append(found, fail(problem.Message, "Correct what the message says; kube-proxy trace shows what becomes of other packets.")...)
			continue
		}
		found = append(found, warn(problem.Reason+": "+problem.Message, "Correct the setting or the file that the message names.")...)
	}
	return or(found, "the proxy uses its configuration and all of its manifests")
}

// observed asks the proxy for the problems of Services that only it knows: none before the first sync.
func observed(ctx context.Context, c *Checker) []Result {
	info, known := c.info(ctx)
	if !known || info.Sync == nil {
		return nil
	}
	var found []Result
	for _, reason := range slices.Sorted(maps.Keys(info.Observed)) {
		found = append(found, warn(fmt.Sprintf("Services with the problem %s: %d", reason, info.Observed[reason]), "See kube-proxy service list -A, and kube-proxy service describe.")...)
	}
	return or(found, "no rules are refused or delayed, and all health check node ports are served")
}

// info asks the proxy for its description, once in a run: one that hangs does not answer the next question either. It is not known of
// another proxy.
func (c *Checker) info(ctx context.Context) (info v1alpha1.Info, known bool) {
	if c.Node.MetricsAddress == "" {
		return info, false
	}
	if c.asked == nil {
		status, body, err := c.Host.Get(ctx, c.Node.MetricsAddress, v1alpha1.Path+"/info")
		c.asked = new("")
		if err == nil && status == http.StatusOK {
			c.asked = &body
		}
	}
	known = json.Unmarshal([]byte(*c.asked), &info) == nil
	return info, known
}
