package check

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// rules tries what the rules need.
func rules(ctx context.Context, c *checker) []finding {
	steps, err := c.doors.Rules(ctx)
	if err != nil {
		return fail(fmt.Sprintf("cannot try the rules of mode %s: %v", c.node.Mode, err), "Run the check as root, with CAP_NET_ADMIN and CAP_SYS_ADMIN, in the node's network namespace (hostNetwork).")
	}
	var found []finding
	for _, step := range steps {
		switch {
		case step.Error == "":
		case step.Module == "":
			found = append(found, finding{Fail, step.Name + " does not work: " + step.Error, "Correct what the message says, or use the other proxy mode."})
		default:
			found = append(found, finding{Fail, step.Name + " does not work: " + step.Error,
				"Load or install the kernel module " + step.Module + " (modprobe " + step.Module + "), or use the other proxy mode."})
		}
	}
	if len(found) == 0 {
		return ok(fmt.Sprintf("the rules of mode %s can be written (%d features tried in a network namespace of their own)", c.node.Mode, len(steps)))
	}
	return found
}

// Shares of the connection tracking table in use, in percent.
const tableBusy, tableFull = 75, 95

// conntrack compares the size of the connection tracking table with its use.
func conntrack(_ context.Context, c *checker) []finding {
	limit, err := c.number("net/netfilter/nf_conntrack_max")
	used, err2 := c.number("net/netfilter/nf_conntrack_count")
	switch err := errors.Join(err, err2); {
	case errors.Is(err, fs.ErrNotExist) && c.stage == Before:
		return ok("connection tracking is not in use yet; the first rule loads nf_conntrack")
	case errors.Is(err, fs.ErrNotExist):
		return fail("connection tracking is not in use: no rule of a proxy is in force", "See the log of kube-proxy, and load the module nf_conntrack.")
	case err != nil:
		return fail(err.Error(), "Mount /proc/sys into the container.")
	case limit <= 0:
		return ok(fmt.Sprintf("%d tracked connections, without a limit", used))
	}
	text := fmt.Sprintf("%d of %d tracked connections are in use", used, limit)
	const fix = "Set linux.conntrack.maxPerCore and .min (--conntrack-max-per-core, --conntrack-min) higher. When the table is full, new connections are dropped."
	switch share := used * 100 / limit; {
	case share >= tableFull:
		return fail(text, fix)
	case share >= tableBusy:
		return warn(text, fix)
	}
	return ok(text)
}

func tools(ctx context.Context, c *checker) []finding {
	var found []finding
	for _, tool := range c.doors.Tools(ctx) {
		if tool.Err != nil {
			found = append(found, fail(tool.Name+": "+tool.Err.Error(), "Install it on the node, or in the image of the proxy.")...)
		} else {
			found = append(found, ok(tool.Name+" "+tool.Version)...)
		}
	}
	return found
}

func variants(ctx context.Context, c *checker) []finding {
	holding, err := c.doors.Variants(ctx)
	switch {
	case err != nil:
		return warn("cannot look for the variants of iptables: "+err.Error(), "Run the check with CAP_NET_ADMIN.")
	case len(holding) > 1:
		return warn("both variants of iptables, "+strings.Join(holding, " and ")+", have chains of Kubernetes: both are in force",
			"Find out which programs write which (iptables-nft-save, iptables-legacy-save). After the switch, \"kube-proxy --cleanup\" removes those of proxies from both; restart the node to remove the rest.")
	}
	return ok("no rules in two variants of iptables")
}

// forwarding reports whether the kernel forwards packets between interfaces, which pods need.
func forwarding(_ context.Context, c *checker) []finding {
	var found []finding
	for _, family := range c.node.Families {
		name := "net/ipv4/ip_forward"
		if family == cluster.IPv6 {
			name = "net/ipv6/conf/all/forwarding"
		}
		value, err := c.doors.Setting(name)
		sysctl := strings.ReplaceAll(name, "/", ".")
		switch {
		case err != nil:
			found = append(found, fail(err.Error(), "Mount /proc/sys into the container.")...)
		case value == "0":
			found = append(found, fail(sysctl+" is 0: "+family.String()+" packets between nodes and pods are dropped", "sysctl -w "+sysctl+"=1, and set it in /etc/sysctl.d to keep it. The network plugin usually does.")...)
		default:
			found = append(found, ok(family.String()+" packets are forwarded ("+sysctl+" is "+value+")")...)
		}
	}
	return found
}

// reversePath warns of the strict check of sources, which drops replies that take another way.
func reversePath(_ context.Context, c *checker) []finding {
	if !slices.Contains(c.node.Families, cluster.IPv4) {
		return nil
	}
	value, err := c.doors.Setting("net/ipv4/conf/all/rp_filter")
	switch {
	case err != nil:
		return fail(err.Error(), "Mount /proc/sys into the container.")
	case value == "1":
		return warn("net.ipv4.conf.all.rp_filter is 1 (strict): packets whose replies would leave by another interface are dropped",
			"If nodes have several interfaces, or pods are reached by tunnels, set it to 2 (loose) or 0.")
	}
	return ok("net.ipv4.conf.all.rp_filter is " + value)
}

// localnet reports whether packets from 127.0.0.1 can be routed, if node ports are wanted there.
func localnet(_ context.Context, c *checker) []finding {
	if !c.node.LocalhostNodePorts {
		return nil
	}
	value, err := c.doors.Setting("net/ipv4/conf/all/route_localnet")
	switch {
	case err != nil:
		return fail(err.Error(), "Mount /proc/sys into the container.")
	case value != "0":
		return ok("net.ipv4.conf.all.route_localnet is " + value)
	case c.stage == Before:
		return ok("net.ipv4.conf.all.route_localnet is 0; the proxy, or its init container (--init-only), sets it")
	}
	return fail("net.ipv4.conf.all.route_localnet is 0: node ports on 127.0.0.1 do not work",
		"Run an init container with --init-only and the rights for it, or set iptables.localhostNodePorts to false.")
}

func forward(ctx context.Context, c *checker) []finding {
	return c.hook(ctx, "forward", "packets to pods and other nodes", "For iptables: iptables -P FORWARD ACCEPT.")
}

func input(ctx context.Context, c *checker) []finding {
	return c.hook(ctx, "input", "health checks of load balancers", "")
}

// hook finds the chains of a hook that drop what they do not accept. nf_tables has no chain that overrides another: what one drops is
// dropped.
func (c *checker) hook(ctx context.Context, hook, traffic, more string) []finding {
	chains, err := c.doors.Chains(ctx)
	if err != nil {
		return warn("cannot read the chains of the hook "+hook+": "+err.Error(), "Run the check with CAP_NET_ADMIN.")
	}
	var found []finding
	for _, chain := range chains {
		if chain.Hook != hook || !chain.Drops {
			continue
		}
		fix := strings.TrimSpace("Let the firewall accept " + traffic + ", or change the policy of the chain. No rule of the proxy can accept what another chain drops. " + more)
		if chain.Rules == 0 {
			found = append(found, fail(fmt.Sprintf("chain %s drops everything: policy drop and no rules", chain.Name), fix)...)
		} else {
			found = append(found, warn(fmt.Sprintf("chain %s has policy drop: %s are dropped unless a rule of it accepts them", chain.Name, traffic), fix)...)
		}
	}
	if len(found) == 0 {
		return ok("no chain of the hook " + hook + " has policy drop")
	}
	return found
}

// number reads a setting that is a number.
func (c *checker) number(name string) (int64, error) {
	text, err := c.doors.Setting(name)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("the kernel setting %s is %q, not a number", name, text)
	}
	return n, nil
}
