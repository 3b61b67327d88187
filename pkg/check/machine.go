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
func rules(ctx context.Context, c *Checker) []Result {
	steps, err := c.Host.Rules(ctx)
	if err != nil {
		return fail(fmt.Sprintf("cannot try the rules of mode %s: %v", c.Node.Mode, err), "Run the check as root, with CAP_NET_ADMIN and CAP_SYS_ADMIN, in the node's network namespace (hostNetwork).")
	}
	var found []Result
	for _, step := range steps {
		fix := "Correct what the message says"
		if step.Module != "" {
			fix = "Load or install the kernel module " + step.Module + " (modprobe " + step.Module + ")"
		}
		if step.Error != "" {
			found = append(found, fail(step.Name+" does not work: "+step.Error, fix+", or use the other proxy mode.")...)
		}
	}
	return or(found, fmt.Sprintf("the rules of mode %s can be written (%d features tried in a network namespace of their own)", c.Node.Mode, len(steps)))
}

// Shares of the connection tracking table in use, in percent.
const tableBusy, tableFull = 75, 95

// conntrack compares the size of the connection tracking table with its use.
func conntrack(_ context.Context, c *Checker) []Result {
	limit, err := c.number("net/netfilter/nf_conntrack_max")
	used, err2 := c.number("net/netfilter/nf_conntrack_count")
	switch err := errors.Join(err, err2); {
	case errors.Is(err, fs.ErrNotExist) && c.Stage == Before:
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

func tools(ctx context.Context, c *Checker) []Result {
	var found []Result
	for _, tool := range c.Host.Tools(ctx) {
		if tool.Err != nil {
			found = append(found, fail(tool.Name+": "+tool.Err.Error(), "Install it on the node, or in the image of the proxy.")...)
		} else {
			found = append(found, ok(tool.Name+" "+tool.Version)...)
		}
	}
	return found
}

func variants(ctx context.Context, c *Checker) []Result {
	holding, err := c.Host.Variants(ctx)
	switch {
	case err != nil:
		return warn("cannot look for the variants of iptables: "+err.Error(), "Run the check with CAP_NET_ADMIN.")
	case len(holding) == 1:
		return ok("chains of Kubernetes are in one variant of iptables only: " + holding[0])
	case len(holding) > 1:
		return warn("both variants of iptables, "+strings.Join(holding, " and ")+", have chains of Kubernetes: both are in force",
			"Find out which programs write which (iptables-nft-save, iptables-legacy-save). After the switch, \"kube-proxy --cleanup\" removes those of proxies from both; restart the node to remove the rest.")
	}
	return ok("no chains of Kubernetes in any variant of iptables")
}

// unread is the result for a setting that cannot be read. While the proxy runs that is no failure: it serves all the same.
func (c *Checker) unread(err error) []Result {
	result := fail
	if c.Stage == During {
		result = warn
	}
	return result(err.Error(), "Mount /proc/sys into the container.")
}

// forwarding reports whether the kernel forwards packets between interfaces, which pods need.
func forwarding(_ context.Context, c *Checker) []Result {
	var found []Result
	for _, family := range c.Node.Families {
		name := "net/ipv4/ip_forward"
		if family == cluster.IPv6 {
			name = "net/ipv6/conf/all/forwarding"
		}
		value, err := c.Host.Setting(name)
		sysctl := strings.ReplaceAll(name, "/", ".")
		switch {
		case err != nil:
			found = append(found, c.unread(err)...)
		case value == "0":
			found = append(found, fail(sysctl+" is 0: "+family.String()+" packets between nodes and pods are dropped", "sysctl -w "+sysctl+"=1, and set it in /etc/sysctl.d to keep it. The network plugin usually does.")...)
		default:
			found = append(found, ok(family.String()+" packets are forwarded ("+sysctl+" is "+value+")")...)
		}
	}
	return found
}

// reversePath warns of the strict check of sources, which drops replies that take another way.
func reversePath(_ context.Context, c *Checker) []Result {
	if !slices.Contains(c.Node.Families, cluster.IPv4) {
		return nil
	}
	value, err := c.Host.Setting("net/ipv4/conf/all/rp_filter")
	switch {
	case err != nil:
		return c.unread(err)
	case value == "1":
		return warn("net.ipv4.conf.all.rp_filter is 1 (strict): packets whose replies would leave by another interface are dropped",
			"If nodes have several interfaces, or pods are reached by tunnels, set it to 2 (loose) or 0.")
	}
	return ok("net.ipv4.conf.all.rp_filter is " + value)
}

// localnet reports whether packets from 127.0.0.1 can be routed, if node ports are wanted there.
func localnet(_ context.Context, c *Checker) []Result {
	if !c.Node.LocalhostNodePorts {
		return nil
	}
	value, err := c.Host.Setting("net/ipv4/conf/all/route_localnet")
	switch {
	case err != nil:
		return c.unread(err)
	case value != "0":
		return ok("net.ipv4.conf.all.route_localnet is " + value)
	case c.Stage == Before:
		return ok("net.ipv4.conf.all.route_localnet is 0; the proxy, or its init container (--init-only), sets it")
	}
	return fail("net.ipv4.conf.all.route_localnet is 0: node ports on 127.0.0.1 do not work",
		"Run an init container with --init-only and the rights for it, or set iptables.localhostNodePorts to false.")
}

// writable reports whether kernel settings can be written, as the proxy or its init container does with those of connection
// tracking. It asks for one that is there without any module, and in every network namespace.
func writable(_ context.Context, c *Checker) []Result {
	if err := c.Host.Writable("net/ipv4/ip_forward"); err != nil {
		return warn("kernel settings cannot be written: "+err.Error()+": the proxy cannot configure connection tracking",
			"Mount /proc/sys into a privileged container, run an init container with --init-only and the rights for it, or set the settings on the node.")
	}
	return ok("kernel settings can be written")
}

func forward(ctx context.Context, c *Checker) []Result {
	return c.hook(ctx, "forward", "packets to pods and other nodes", "For iptables: iptables -P FORWARD ACCEPT.")
}

func input(ctx context.Context, c *Checker) []Result {
	return c.hook(ctx, "input", "health checks of load balancers", "")
}

// hook finds the chains of a hook that drop what they do not accept. nf_tables has no chain that overrides another: what one drops is
// dropped.
func (c *Checker) hook(ctx context.Context, hook, traffic, more string) []Result {
	chains, err := c.Host.Chains(ctx)
	if err != nil {
		return warn("cannot read the chains of the hook "+hook+": "+err.Error(), "Run the check with CAP_NET_ADMIN.")
	}
	var found []Result
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
	return or(found, "no chain of the hook "+hook+" has policy drop")
}

// number reads a setting that is a number.
func (c *Checker) number(name string) (int64, error) {
	text, err := c.Host.Setting(name)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("the kernel setting %s is %q, not a number", name, text)
	}
	return n, nil
}
