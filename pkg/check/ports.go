package check

import (
	"context"
	"fmt"
	"net/http"
)

// servers listens on the addresses of the proxy's servers.
func servers(ctx context.Context, c *Checker) []Result {
	var found []Result
	for _, server := range []struct{ name, address string }{{"metrics", c.Node.MetricsAddress}, {"healthz", c.Node.HealthzAddress}} {
		if server.address == "" {
			continue
		}
		err := c.Host.Listen(server.address)
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
func (c *Checker) runs(ctx context.Context) bool {
	if c.Node.MetricsAddress == "" {
		return false
	}
	status, _, err := c.Host.Get(ctx, c.Node.MetricsAddress, "/proxyMode")
	return err == nil && status == http.StatusOK
}

func healthCheckPorts(ctx context.Context, c *Checker) []Result {
	if c.API == nil {
		return nil
	}
	ports, err := c.API.HealthCheckNodePorts(ctx)
	if err != nil {
		return warn("cannot list the health check node ports of Services: "+err.Error(), "See the checks of the group api.")
	}
	var taken []uint16
	for _, port := range ports {
		if c.Host.Listen(fmt.Sprintf(":%d", port)) != nil {
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
