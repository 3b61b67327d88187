package app

import (
	"fmt"
	"os"
	"strings"

	"k8s.io/component-base/featuregate"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/config"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/host"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/node"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// ThisNode is what a configuration says about the node that a proxy serves, before anything is opened.
type ThisNode struct {
	// Name is that of the Node.
	Name string
	// Wanted are the families to serve, the primary one first if it is known.
	Wanted []cluster.Family
	// given is whether the configuration sets the addresses, in place of the Node's.
	given    bool
	Builder  *cluster.Builder
	Planning *plan.Options
}

// NewThisNode returns the node of that name, by default this host's. hasIPv6 is whether the node has IPv6 besides IPv4.
func NewThisNode(cfg *config.KubeProxyConfiguration, gates featuregate.FeatureGate, name string, hasIPv6 bool) (n ThisNode, err error) {
	if n.Name, err = nodeName(name, os.Hostname); err != nil {
		return n, err
	}
	addrs, err := cluster.ParseAddrs(cfg.NodeIPOverride)
	if err != nil {
		return n, fmt.Errorf("nodeIPOverride: %w", err)
	}
	if n.Wanted, err = node.Families(hasIPv6, node.FamilyPolicy(cfg.IPFamilyPolicy), addrs); err != nil {
		return n, err
	}
	n.given, n.Builder = len(addrs) > 0, cluster.NewBuilder(n.Name, addrs...)
	if n.Planning, err = PlanOptions(cfg, gates); err == nil {
		n.Planning.Families = n.Wanted
	}
	return n, err
}

// MachineHasIPv6 reports whether this machine has IPv6 besides IPv4.
func MachineHasIPv6() bool { return host.HasIPv6(os.DirFS("/proc")) }

// nodeName is the name of the Node that this proxy runs on.
func nodeName(override string, hostname func() (string, error)) (string, error) {
	name := override
	if name == "" {
		var err error
		if name, err = hostname(); err != nil {
			return "", fmt.Errorf("the name of this host is unknown, set --%s: %w", HostnameFlag, err)
		}
	}
	name = strings.ToLower(strings.TrimSpace(name))
	if name == "" {
		return "", fmt.Errorf("the name of this node is blank; set --%s", HostnameFlag)
	}
	return name, nil
}
