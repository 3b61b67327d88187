package check

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

func lock(_ context.Context, c *checker) []finding {
	holder, err := c.doors.Holder()
	switch {
	case err != nil:
		return fail(err.Error(), "Make sure that no program of another user occupies the lock; it would keep the proxy from starting.")
	case holder == "" && c.stage == After:
		return fail("no kube-proxy of this project runs in this network namespace", "See kubectl -n kube-system get pods, and the log of kube-proxy.")
	case holder != "" && c.stage == Before:
		return warn(holder, "A new proxy waits until this one ends, and then takes over its rules.")
	case holder == "":
		return ok("no other kube-proxy of this project holds this network namespace")
	}
	return ok(holder)
}

// modes finds rules of other modes.
func modes(ctx context.Context, c *checker) []finding {
	present, err := c.doors.Present(ctx)
	if err != nil {
		return warn("cannot look for the rules of all modes: "+err.Error(), "Run the check with CAP_NET_ADMIN.")
	}
	others := slices.DeleteFunc(slices.Clone(present), func(mode string) bool { return mode == c.node.Mode })
	switch {
	case len(others) == 0:
		return ok("no rules of another proxy mode")
	case c.stage == Before:
		return ok("rules of mode " + strings.Join(others, ", ") + " are present; the proxy removes them once its own are in force")
	}
	return warn("rules of mode "+strings.Join(others, ", ")+" are present beside those of mode "+c.node.Mode,
		"Stop the other kube-proxy, if one runs. Then restart this one, which removes the rules; or stop it and run kube-proxy --cleanup.")
}

func processes(_ context.Context, c *checker) []finding {
	pids, err := c.doors.Processes()
	switch {
	case err != nil:
		return warn("cannot look for other processes: "+err.Error(), "Share the host's process namespace (hostPID), or run the check on the node.")
	case len(pids) > 0 && c.stage == Before:
		return warn(fmt.Sprintf("a kube-proxy runs: process %s", list(pids)), "End it before the switch: two kube-proxies that take no lock undo each other's rules.")
	case len(pids) > 1:
		return warn(fmt.Sprintf("several kube-proxies run: processes %s", list(pids)), "Stop all but one, such as the old DaemonSet.")
	}
	return ok("no kube-proxy runs beside this one")
}

func list[T any](values []T) string {
	texts := make([]string, len(values))
	for i, value := range values {
		texts[i] = fmt.Sprint(value)
	}
	return strings.Join(texts, ", ")
}

// servers listens on the addresses of the proxy's servers.
func servers(ctx context.Context, c *checker) []finding {
	var found []finding
	for _, server := range []struct{ name, address string }{{"metrics", c.node.MetricsAddress}, {"healthz", c.node.HealthzAddress}} {
		if server.address == "" {
			continue
		}
		err := c.doors.Listen(server.address)
		switch {
		case err == nil:
			found = append(found, ok(server.name+": "+server.address+" is free")...)
		case c.runs(ctx):
			found = append(found, warn(server.name+": "+server.address+" is in use, and a kube-proxy runs", "The port is free when that kube-proxy ends.")...)
		default:
			found = append(found, fail(server.name+": "+err.Error(), "Find the program with ss -ltnp and end it, or set another "+server.name+"BindAddress.")...)
		}
	}
	return found
}

// runs reports whether a kube-proxy answers, ours or another one.
func (c *checker) runs(ctx context.Context) bool {
	if c.node.MetricsAddress == "" {
		return false
	}
	status, _, err := c.doors.Get(ctx, c.node.MetricsAddress, "/proxyMode")
	return err == nil && status == http.StatusOK
}

func healthCheckPorts(ctx context.Context, c *checker) []finding {
	if c.doors.API == nil {
		return nil
	}
	ports, err := c.doors.API.HealthCheckNodePorts(ctx)
	if err != nil {
		return warn("cannot list the health check node ports of Services: "+err.Error(), "See the checks of the group api.")
	}
	var taken []uint16
	for _, port := range ports {
		if c.doors.Listen(fmt.Sprintf(":%d", port)) != nil {
			taken = append(taken, port)
		}
	}
	switch {
	case len(taken) == 0:
		return ok(fmt.Sprintf("all %d health check node ports are free", len(ports)))
	case c.runs(ctx):
		return warn(fmt.Sprintf("health check node ports in use: %s, and a kube-proxy runs", list(taken)), "The ports are free when that kube-proxy ends.")
	}
	return fail(fmt.Sprintf("health check node ports in use: %s", list(taken)), "Find the programs with ss -ltnp. Load balancers get their answers.")
}

// needed are the rights that the proxy uses.
func needed() []Right {
	var all []Right
	for _, r := range []Right{{"", "", "services"}, {"", "discovery.k8s.io", "endpointslices"}, {"", "", "nodes"}, {"", "networking.k8s.io", "servicecidrs"}} {
		all = append(all, Right{"list", r.Group, r.Resource}, Right{"watch", r.Group, r.Resource})
	}
	return append(all, Right{"create", "events.k8s.io", "events"})
}

func rights(ctx context.Context, c *checker) []finding {
	if c.doors.API == nil {
		return nil
	}
	var missing []string
	optional := true
	for _, right := range needed() {
		allowed, err := c.doors.API.Allowed(ctx, right)
		if err != nil {
			return fail("cannot ask the API server: "+err.Error(), "Check the kubeconfig, the network to the API server, and its certificates.")
		}
		if !allowed {
			missing = append(missing, right.Verb+" "+right.Resource)
			optional = optional && (right.Resource == "events" || right.Resource == "servicecidrs")
		}
	}
	const fix = "Bind the ClusterRole system:node-proxier to the proxy's user, usually the ServiceAccount kube-system/kube-proxy."
	switch {
	case len(missing) == 0:
		return ok("the API server allows everything that the proxy reads and writes")
	case optional:
		return warn("the API server does not allow: "+strings.Join(missing, ", "), fix)
	}
	return fail("the API server does not allow: "+strings.Join(missing, ", "), fix)
}

// node compares the Node's addresses with those of the machine.
func node(ctx context.Context, c *checker) []finding {
	if c.doors.API == nil {
		return nil
	}
	addrs, exists, err := c.doors.API.NodeAddresses(ctx, c.node.Name)
	switch {
	case err != nil:
		return fail("cannot read the Node "+c.node.Name+": "+err.Error(), "Check the kubeconfig, the network to the API server, and the rights to get or list Nodes.")
	case !exists:
		return fail("there is no Node "+c.node.Name, "Set --hostname-override to the name that kubectl get nodes shows.")
	}
	here, err := c.doors.Interfaces()
	if err != nil {
		return fail(err.Error(), "Run the check in the node's network namespace (hostNetwork).")
	}
	var found []finding
	for _, family := range c.node.Families {
		at := slices.IndexFunc(addrs, func(a netip.Addr) bool { return cluster.FamilyOf(a) == family })
		switch {
		case at < 0 && (len(c.node.Families) == 1 || len(addrs) == 0):
			found = append(found, warn(fmt.Sprintf("Node %s has no %s address", c.node.Name, family), "See whether kubelet and the cloud controller manager run, or set nodeIPOverride (--bind-address).")...)
		case at < 0:
			found = append(found, ok(fmt.Sprintf("Node %s has no %s address; it is single-stack", c.node.Name, family))...)
		case !slices.Contains(here, addrs[at]):
			found = append(found, warn(fmt.Sprintf("address %s of Node %s is not on an interface here: node ports on primary addresses do not get packets to it", addrs[at], c.node.Name),
				"Run the check on that node. If the address is translated outside, set nodePortAddresses to a CIDR of the interface.")...)
		default:
			found = append(found, ok(fmt.Sprintf("address %s of Node %s is on this machine", addrs[at], c.node.Name))...)
		}
	}
	return found
}

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
