//go:build linux

package app

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/config"
	"github.com/seed-11a05479/kube-proxy/pkg/check"
	checkapi "github.com/seed-11a05479/kube-proxy/pkg/check/api"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/firewall"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipvs"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/netif"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/netlock"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/scratch"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/sysctl"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/leftovers"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/node"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// pageTimeout bounds a request to the proxy, and pageLimit what is read of its answer.
const (
	pageTimeout = 3 * time.Second
	pageLimit   = 64 << 10
)

// openDoors returns what a configuration says about this node, and the doors of the checks. Nothing is opened yet.
func openDoors(l *loaded, withoutAPI bool) (check.Node, *check.Doors, error) {
	cfg := l.cfg
	chosen, err := chooseDataplane(cfg.Mode)
	if err != nil {
		return check.Node{}, nil, err
	}
	name, err := nodeName(cfg.HostnameOverride, os.Hostname)
	if err != nil {
		return check.Node{}, nil, err
	}
	given, err := nodeIPOverride(cfg)
	if err != nil {
		return check.Node{}, nil, err
	}
	families, err := node.Families(machineFamilies(os.DirFS("/proc")), familyPolicy(cfg), given)
	if err != nil {
		return check.Node{}, nil, err
	}
	planning, err := planOptions(cfg, l.features.Gates, chosen.nodePorts)
	if err != nil {
		return check.Node{}, nil, err
	}
	planning.NodePorts.Loopback = chosen.mode == config.ProxyModeIPTables && cfg.IPTables.LocalhostNodePorts
	checked := check.Node{
		Name: name, Mode: string(chosen.mode), Families: families, MetricsAddress: cfg.MetricsBindAddress, HealthzAddress: cfg.HealthzBindAddress,
		LocalhostNodePorts: servesLoopback(planning),
	}
	doors := &check.Doors{
		Setting:    sysctl.Kernel{}.Read,
		Rules:      func(ctx context.Context) ([]check.Step, error) { return rehearseRules(ctx, checked) },
		Tools:      func(ctx context.Context) []check.Tool { return toolVersions(ctx, checked) },
		Variants:   kubernetesVariants,
		Chains:     func(ctx context.Context) ([]check.Chain, error) { return firewallChains(ctx, families) },
		Holder:     lockHolder,
		Present:    presentModes,
		Processes:  func() ([]int, error) { return netlock.Processes("kube-proxy") },
		Listen:     listenBriefly,
		Get:        getPage,
		Interfaces: netif.New().Addrs,
	}
	if !withoutAPI {
		doors.API, err = checkedAPI(cfg)
	}
	return checked, doors, err
}

// servesLoopback reports whether the plan has node ports on 127.0.0.1.
func servesLoopback(planning *plan.Options) bool {
	loopback := &cluster.Node{Interfaces: []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1})}}
	return planning.NodePorts.Loopback && len(plan.Compute(&cluster.Snapshot{Node: loopback}, planning, nil).Node.NodePortAddrs) > 0
}

func checkedAPI(cfg *config.KubeProxyConfiguration) (check.API, error) {
	client, err := clientConfig(cfg, "")
	if err != nil {
		return nil, fmt.Errorf("%w, or --skip api", err)
	}
	return checkapi.New(client)
}

// rehearseRules runs "kube-proxy check rehearse" in a network namespace of its own.
func rehearseRules(ctx context.Context, node check.Node) ([]check.Step, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	own, err := scratch.Own()
	if err != nil {
		return nil, err
	}
	args := []string{"check", "rehearse", "--outside", string(own), "--proxy-mode", node.Mode}
	for _, family := range node.Families {
		args = append(args, "--family", family.String())
	}
	if node.Mode == string(config.ProxyModeIPTables) {
		variant, err := ipt.Detect(ctx)
		if err != nil {
			return nil, err
		}
		args = append(args, "--variant", string(variant))
	}
	var stdout, stderr bytes.Buffer
	command := scratch.Command(ctx, program, args...)
	command.Stdout, command.Stderr = &stdout, &stderr
	switch err := command.Run(); {
	case scratch.Refused(err):
		return nil, fmt.Errorf("make a network namespace: %w: CAP_SYS_ADMIN is missing", err)
	case err != nil:
		return nil, fmt.Errorf("%w: %s", err, bytes.TrimSpace(stderr.Bytes()))
	}
	var steps []check.Step
	return steps, json.Unmarshal(stdout.Bytes(), &steps)
}

func toolVersions(ctx context.Context, node check.Node) []check.Tool {
	if node.Mode == string(config.ProxyModeNFTables) {
		version, err := nft.Version(ctx)
		return []check.Tool{{Name: "nft", Version: version, Err: err}}
	}
	variant, err := ipt.Detect(ctx)
	if err != nil {
		return []check.Tool{{Name: "iptables", Err: err}}
	}
	var all []check.Tool
	for _, family := range node.Families {
		version, err := ipt.Version(ctx, tablesFamily(family), variant)
		all = append(all, check.Tool{Name: fmt.Sprintf("iptables for %s, variant %s:", family, variant), Version: version, Err: err})
	}
	return all
}

func tablesFamily(family cluster.Family) ipt.Family {
	if family == cluster.IPv6 {
		return ipt.IPv6
	}
	return ipt.IPv4
}

func kubernetesVariants(ctx context.Context) ([]string, error) {
	holding, err := ipt.Holding(ctx, []string{"nat", "filter", "mangle"}, func(_, chain string) bool { return strings.HasPrefix(chain, "KUBE-") })
	var names []string
	for _, variant := range holding {
		names = append(names, string(variant))
	}
	return names, err
}

// firewallChains are those of nf_tables and of the legacy variant of iptables.
func firewallChains(ctx context.Context, families []cluster.Family) ([]check.Chain, error) {
	chains, err := firewall.Chains(ctx)
	var all []check.Chain
	for _, c := range chains {
		all = append(all, check.Chain{Name: c.Family + " " + c.Table + " " + c.Name, Hook: c.Hook, Drops: c.Drops, Rules: c.Rules})
	}
	failed := []error{err}
	for _, family := range families {
		policies, err := ipt.Policies(ctx, tablesFamily(family))
		failed = append(failed, err)
		for chain, hook := range map[string]string{"FORWARD": "forward", "INPUT": "input"} {
			if p, ok := policies[chain]; ok {
				all = append(all, check.Chain{Name: fmt.Sprintf("%s of iptables-legacy (%s)", chain, family), Hook: hook, Drops: p.Drops, Rules: p.Rules})
			}
		}
	}
	return all, errors.Join(failed...)
}

func lockHolder() (string, error) {
	owner, held, err := netlock.Holder(netlock.Name)
	if err != nil || !held {
		return "", err
	}
	return (&netlock.HeldError{Owner: owner}).Error(), nil
}

func presentModes(ctx context.Context) ([]string, error) {
	var present []string
	var failed []error
	for _, d := range dataplanes {
		there, err := d.present(ctx)
		if failed = append(failed, err); there {
			present = append(present, string(d.mode))
		}
	}
	there, err := leftovers.Present(ipvs.Kernel{})
	if failed = append(failed, err); there {
		present = append(present, string(config.ProxyModeIPVS))
	}
	return present, errors.Join(failed...)
}

func listenBriefly(address string) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	return listener.Close()
}

func getPage(ctx context.Context, address, path string) (status int, body string, err error) {
	ctx, cancel := context.WithTimeout(ctx, pageTimeout)
	defer cancel()
	if at, err := netip.ParseAddrPort(address); err == nil && at.Addr().IsUnspecified() {
		loopback := netip.AddrFrom4([4]byte{127, 0, 0, 1})
		if at.Addr().Is6() {
			loopback = netip.IPv6Loopback()
		}
		address = netip.AddrPortFrom(loopback, at.Port()).String()
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, nil)
	if err != nil {
		return 0, "", err
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}} // no proxy from the environment
	answer, err := client.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(answer.Body, pageLimit))
	return answer.StatusCode, string(text), err
}
