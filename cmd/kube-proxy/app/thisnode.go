package app

import (
	"fmt"
	"os"
	"strings"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/config"
	"github.com/seed-11a05479/kube-proxy/pkg/features"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/host"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/node"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// thisNode is what a configuration says about the node that a proxy serves, before anything is opened.
type thisNode struct {
	// name is that of the Node.
	name string
	// wanted are the families to serve, the primary one first if it is known.
	wanted []cluster.Family
	// given is whether the configuration sets the addresses, in place of the Node's.
	given    bool
	builder  *cluster.Builder
	planning *plan.Options
}

// newThisNode returns the node of that name, by default this host's. hasIPv6 is whether the node has IPv6 besides IPv4.
func newThisNode(cfg *config.KubeProxyConfiguration, gates features.Gates, name string, hasIPv6 bool) (n thisNode, err error) {
	if n.name, err = nodeName(name, os.Hostname); err != nil {
		return n, err
	}
	addrs, err := cluster.ParseAddrs(cfg.NodeIPOverride)
	if err != nil {
		return n, fmt.Errorf("nodeIPOverride: %w", err)
	}
	if n.wanted, err = node.Families(hasIPv6, familyPolicy(cfg), addrs); err != nil {
		return n, err
	}
	n.given, n.builder = len(addrs) > 0, cluster.NewBuilder(n.name, addrs...)
	n.planning, err = planOptions(cfg, gates)
	return n, err
}

// machineHasIPv6 reports whether this machine has IPv6 besides IPv4.
func machineHasIPv6() bool { return host.HasIPv6(os.DirFS("/proc")) }

// nodeName is the name of the Node that this proxy runs on.
func nodeName(override string, hostname func() (string, error)) (string, error) {
	name := override
	if name == "" {
		var err error
		if name, err = hostname(); err != nil {
			return "", fmt.Errorf("the name of this host is unknown, set --%s: %w", hostnameFlag, err)
		}
	}
	name = strings.ToLower(strings.TrimSpace(name))
	if name == "" {
		return "", fmt.Errorf("the name of this node is blank; set --%s", hostnameFlag)
	}
	return name, nil
}
