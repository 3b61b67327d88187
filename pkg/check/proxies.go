package check

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
)

func lock(_ context.Context, c *Checker) []Result {
	holder, answers, err := c.Host.Holder()
	switch {
	case errors.Is(err, fs.ErrPermission):
		return warn("cannot determine who holds this network namespace: "+err.Error(), "Run the check with CAP_NET_ADMIN.")
	case err != nil:
		return fail(err.Error(), "Run the check as root, with CAP_NET_ADMIN, and load the module nfnetlink_log: without the lock two proxies do not wait for each other.")
	case holder == "" && c.Stage == After:
		return fail("no kube-proxy of this project runs in this network namespace", "See kubectl -n kube-system get pods, and the log of kube-proxy; and run the check in the network namespace of the node, not of a pod.")
	case holder != "" && c.Stage == Before:
		return warn(holder, "A new proxy waits until this one ends, and then takes over its rules.")
	case holder != "" && !answers:
		return fail(holder, "It is stopped, or hangs: see its state (ps) and its log, and restart it. Its rules stay in force meanwhile.")
	case holder == "":
		return ok("no other kube-proxy of this project holds this network namespace")
	}
	return ok(holder)
}

// modes finds rules of other modes.
func modes(ctx context.Context, c *Checker) []Result {
	present, err := c.Host.Present(ctx)
	if err != nil {
		return warn("cannot look for the rules of all modes: "+err.Error(), "Run the check with CAP_NET_ADMIN.")
	}
	others := slices.DeleteFunc(slices.Clone(present), func(mode string) bool { return mode == c.Node.Mode })
	switch {
	case len(others) == 0:
		return ok("no rules of another proxy mode")
	case c.Stage == Before:
		return ok("rules of mode " + strings.Join(others, ", ") + " are present; the proxy removes them once its own are in force")
	}
	if info, known := c.info(ctx); known && info.Synced == nil {
		return warn("rules of mode "+strings.Join(others, ", ")+" are present", "The proxy removes them once its own are in force: see proxy/health.")
	}
	return warn("rules of mode "+strings.Join(others, ", ")+" are present beside those of mode "+c.Node.Mode,
		"What ipvs mode left stays while connections use it. Otherwise stop the other kube-proxy, if one runs. Then restart this one, which removes the rules; or stop it and run kube-proxy --cleanup.")
}

func processes(_ context.Context, c *Checker) []Result {
	pids, err := c.Host.Processes()
	switch {
	case err != nil:
		return warn("cannot look for other processes: "+err.Error(), "Run the check on the node, as root.")
	case len(pids) > 0 && c.Stage == Before:
		return warn(fmt.Sprintf("a kube-proxy runs: process %s", list(pids)), "End it before the switch: two kube-proxies that take no lock undo each other's rules.")
	case len(pids) > 1:
		return warn(fmt.Sprintf("several kube-proxies run: processes %s", list(pids)), "Stop all but one, such as the old DaemonSet.")
	}
	return ok("no kube-proxy runs beside this one, among the processes that are visible here")
}

func list[T any](values []T) string {
	texts := make([]string, len(values))
	for i, value := range values {
		texts[i] = fmt.Sprint(value)
	}
	return strings.Join(texts, ", ")
}
