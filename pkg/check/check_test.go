package check

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// fakeAPI allows everything but what is denied.
type fakeAPI struct {
	denied []string
	addrs  []netip.Addr
	exists bool
	ports  []uint16
	err    error
}

func (f *fakeAPI) Allowed(_ context.Context, right Right) (bool, error) {
	return !slices.Contains(f.denied, right.Verb+" "+right.Resource), f.err
}

func (f *fakeAPI) NodeAddresses(_ context.Context, name string) ([]netip.Addr, bool, error) {
	if name != "n1" {
		return nil, false, fmt.Errorf("asked for the Node %q", name)
	}
	return f.addrs, f.exists, f.err
}

func (f *fakeAPI) HealthCheckNodePorts(context.Context) ([]uint16, error) { return f.ports, f.err }

// machine is a node whose outcome is set field by field. It is strict: a setting that is not set does not exist, and pages
// that the proxy does not have are errors.
type machine struct {
	node      Node
	settings  map[string]string
	steps     []Step
	tools     []backend.Tool
	variants  []string
	chains    []Chain
	holder    string
	silent    bool // the holder does not answer
	present   []string
	processes []int
	taken     map[string]bool
	pages     map[string]string // by address and path: status and body
	addrs     []netip.Addr
	api       *fakeAPI
	config    error
	// failing is the door that returns an error, and why which; errDoor by default.
	failing string
	why     error
}

// good is a node on which everything is right at a stage.
func good(stage Stage) *machine {
	m := &machine{
		node: Node{Name: "n1", Mode: "nftables", Families: []cluster.Family{cluster.IPv4, cluster.IPv6}, MetricsAddress: "127.0.0.1:10249", HealthzAddress: "0.0.0.0:10256"},
		settings: map[string]string{"net/ipv4/ip_forward": "1", "net/ipv6/conf/all/forwarding": "1", "net/ipv4/conf/all/rp_filter": "2", "net/ipv4/conf/all/route_localnet": "0",
			"net/netfilter/nf_conntrack_max": "1000", "net/netfilter/nf_conntrack_count": "10"},
		steps: []Step{{"tables (IPv4)", "nf_tables", ""}}, tools: []backend.Tool{{Name: "nft", Version: "v1.0.6"}}, variants: []string{"nft"},
		chains: []Chain{{"ip filter FORWARD", "forward", false, 3}},
		taken:  map[string]bool{}, pages: map[string]string{},
		addrs: []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")},
	}
	m.api = &fakeAPI{addrs: m.addrs, exists: true, ports: []uint16{30000}}
	if stage == After {
		m.holder, m.present, m.processes = "process 7 holds it", []string{"nftables"}, []int{7}
		m.pages = map[string]string{"127.0.0.1:10249/proxyMode": "200 nftables", "0.0.0.0:10256/healthz": "200 {}", "127.0.0.1:10249/api/v1alpha1/info": `200 {"synced": "2026-11-28T18:00:00Z", "sync": {}}`}
	}
	return m
}

var errDoor = errors.New("the door is stuck")

func (m *machine) err(door string) error {
	if door == m.failing {
		if m.why != nil {
			return m.why
		}
		return errDoor
	}
	return nil
}

func (m *machine) Setting(name string) (string, error) {
	value, ok := m.settings[name]
	if !ok {
		return "", fmt.Errorf("read the kernel setting %s: %w", name, fs.ErrNotExist)
	}
	return value, m.err("Setting")
}
func (m *machine) Writable(string) error                      { return m.err("Writable") }
func (m *machine) Rules(context.Context) ([]Step, error)      { return m.steps, m.err("Rules") }
func (m *machine) Tools(context.Context) []backend.Tool       { return m.tools }
func (m *machine) Variants(context.Context) ([]string, error) { return m.variants, m.err("Variants") }
func (m *machine) Chains(context.Context) ([]Chain, error)    { return m.chains, m.err("Chains") }
func (m *machine) Holder() (string, bool, error)              { return m.holder, !m.silent, m.err("Holder") }
func (m *machine) Present(context.Context) ([]string, error)  { return m.present, m.err("Present") }
func (m *machine) Processes() ([]int, error)                  { return m.processes, m.err("Processes") }
func (m *machine) Interfaces() ([]netip.Addr, error)          { return m.addrs, m.err("Interfaces") }
func (m *machine) Listen(address string) error {
	if m.taken[address] {
		return errors.New("listen " + address + ": address already in use")
	}
	return nil
}
func (m *machine) Get(_ context.Context, address, path string) (status int, body string, err error) {
	page, ok := m.pages[address+path]
	if !ok {
		return 0, "", errors.New("connection refused")
	}
	_, err = fmt.Sscanf(page, "%d", &status)
	_, body, _ = strings.Cut(page, " ")
	return status, body, err
}

// run checks the machine.
func (m *machine) run(t *testing.T, stage Stage, skip ...string) []Result {
	c := &Checker{Stage: stage, Node: m.node, Host: m, ConfigFile: "config.conf", ConfigError: m.config}
	if m.api != nil {
		c.API = m.api
	}
	return c.Run(t.Context(), skip...)
}

// TestGood checks that a good node has only good lines, one for each check at least, at both stages.
func TestGood(t *testing.T) {
	for _, stage := range []Stage{Before, After} {
		m := good(stage)
		m.node.LocalhostNodePorts = true
		if stage == After {
			m.settings["net/ipv4/conf/all/route_localnet"] = "1"
		}
		results := m.run(t, stage)
		seen := map[string]bool{}
		for _, r := range results {
			seen[r.Group+"/"+r.Check] = true
			if r.Status != OK || r.Fix != "" {
				t.Errorf("stage %d: %+v", stage, r)
			}
		}
		for _, row := range rows() {
			if row.stages&stage != 0 && !seen[row.group+"/"+row.name] {
				t.Errorf("stage %d: no line of %s/%s", stage, row.group, row.name)
			}
		}
	}
}

// outcome is a row of TestOutcomes: what is wrong, and the lines that are not ok, as "status group/check message".
type outcome struct {
	stage Stage
	wrong func(m *machine)
	want  []string
}

func machineOutcomes() []outcome {
	return []outcome{
		{Before, func(m *machine) {
			m.config = errors.New("config.conf:3: mode: unknown\nconfig.conf:4: foo: unknown field")
		}, []string{
			"fail config/file config.conf:3: mode: unknown; config.conf:4: foo: unknown field; the checks are those of a proxy without a configuration file"}},
		{Before, func(m *machine) { m.failing = "Writable" }, []string{
			"warn settings/writable kernel settings cannot be written: the door is stuck: the proxy cannot configure connection tracking"}},
		{Before, func(m *machine) { m.failing = "Rules" }, []string{"fail kernel/rules cannot try the rules of mode nftables: the door is stuck"}},
		{Before, func(m *machine) {
			m.steps = []Step{{"a (IPv4)", "nft_a", ""}, {"b (IPv4)", "nft_b", "no such file"}, {"c", "", "refused"}}
		},
			[]string{"fail kernel/rules b (IPv4) does not work: no such file", "fail kernel/rules c does not work: refused"}},
		{Before, func(m *machine) { delete(m.settings, "net/netfilter/nf_conntrack_max") }, nil},
		{After, func(m *machine) { delete(m.settings, "net/netfilter/nf_conntrack_max") }, []string{"fail kernel/conntrack connection tracking is not in use: no rule of a proxy is in force"}},
		{After, func(m *machine) { m.settings["net/netfilter/nf_conntrack_count"] = "749" }, nil},
		{After, func(m *machine) { m.settings["net/netfilter/nf_conntrack_count"] = "750" }, []string{"warn kernel/conntrack 750 of 1000 tracked connections are in use"}},
		{After, func(m *machine) { m.settings["net/netfilter/nf_conntrack_count"] = "950" }, []string{"fail kernel/conntrack 950 of 1000 tracked connections are in use"}},
		{After, func(m *machine) { m.settings["net/netfilter/nf_conntrack_max"] = "0" }, nil},
		{After, func(m *machine) { m.settings["net/netfilter/nf_conntrack_max"] = "many" }, []string{`fail kernel/conntrack the kernel setting net/netfilter/nf_conntrack_max is "many", not a number`}},
		{Before, func(m *machine) { m.tools = append(m.tools, backend.Tool{Name: "iptables", Err: errDoor}) }, []string{"fail tools/versions iptables: the door is stuck"}},
		{Before, func(m *machine) { m.variants = []string{"nft", "legacy"} }, []string{"warn tools/variants both variants of iptables, nft and legacy, have chains of Kubernetes: both are in force"}},
		{Before, func(m *machine) { m.failing = "Variants" }, []string{"warn tools/variants cannot look for the variants of iptables: the door is stuck"}},
		{After, func(m *machine) { m.settings["net/ipv4/ip_forward"] = "0" }, []string{"fail settings/forwarding net.ipv4.ip_forward is 0: IPv4 packets between nodes and pods are dropped"}},
		{After, func(m *machine) { m.settings["net/ipv6/conf/all/forwarding"] = "0" }, []string{"fail settings/forwarding net.ipv6.conf.all.forwarding is 0: IPv6 packets between nodes and pods are dropped"}},
		{After, func(m *machine) {
			delete(m.settings, "net/ipv4/ip_forward")
			delete(m.settings, "net/ipv4/conf/all/rp_filter")
		}, []string{
			"fail settings/forwarding read the kernel setting net/ipv4/ip_forward: file does not exist", "fail settings/rp_filter read the kernel setting net/ipv4/conf/all/rp_filter: file does not exist"}},
		{During, func(m *machine) { delete(m.settings, "net/ipv4/ip_forward") }, []string{
			"warn settings/forwarding read the kernel setting net/ipv4/ip_forward: file does not exist", "fail proxy/rules there are no rules of mode nftables"}},
		{After, func(m *machine) { m.settings["net/ipv4/conf/all/rp_filter"] = "1" }, []string{
			"warn settings/rp_filter net.ipv4.conf.all.rp_filter is 1 (strict): packets whose replies would leave by another interface are dropped"}},
		{Before, func(m *machine) {
			m.node.LocalhostNodePorts = true
			delete(m.settings, "net/ipv4/conf/all/route_localnet")
		}, []string{"fail settings/route_localnet read the kernel setting net/ipv4/conf/all/route_localnet: file does not exist"}},
		{After, func(m *machine) { m.node.LocalhostNodePorts = true }, []string{"fail settings/route_localnet net.ipv4.conf.all.route_localnet is 0: node ports on 127.0.0.1 do not work"}},
		{Before, func(m *machine) {
			m.chains = []Chain{{"inet guard f", "forward", true, 0}, {"ip filter FORWARD", "forward", true, 2}, {"ip filter INPUT", "input", true, 1}, {"ip filter INPUT", "input", false, 0}}
		},
			[]string{"fail firewall/forward chain inet guard f drops everything: policy drop and no rules",
				"warn firewall/forward chain ip filter FORWARD has policy drop: packets to pods and other nodes are dropped unless a rule of it accepts them",
				"warn firewall/input chain ip filter INPUT has policy drop: health checks of load balancers are dropped unless a rule of it accepts them"}},
		{Before, func(m *machine) { m.failing = "Chains" }, []string{"warn firewall/forward cannot read the chains of the hook forward: the door is stuck",
			"warn firewall/input cannot read the chains of the hook input: the door is stuck"}},
	}
}

func proxyOutcomes() []outcome {
	return []outcome{
		{Before, func(m *machine) { m.holder = "process 7 holds it" }, []string{"warn proxies/lock process 7 holds it"}},
		{After, func(m *machine) {
			m.failing, m.why = "Holder", fmt.Errorf("lock: %w\nunlock: %w\nsleep", syscall.EPERM, syscall.EPERM)
		}, []string{"warn proxies/lock cannot determine who holds this network namespace: lock, unlock: operation not permitted; sleep"}},
		{After, func(m *machine) { m.silent = true }, []string{"fail proxies/lock process 7 holds it"}},
		{After, func(m *machine) { m.holder = "" }, []string{"fail proxies/lock no kube-proxy of this project runs in this network namespace"}},
		{Before, func(m *machine) { m.failing = "Holder" }, []string{"fail proxies/lock the door is stuck"}},
		{Before, func(m *machine) { m.present = []string{"iptables", "ipvs"} }, nil},
		{After, func(m *machine) { m.present = []string{"nftables", "iptables", "ipvs"} }, []string{"warn proxies/modes rules of mode iptables, ipvs are present beside those of mode nftables"}},
		{After, func(m *machine) { m.present = nil }, []string{"fail proxy/rules there are no rules of mode nftables"}},
		{After, func(m *machine) { m.failing = "Present" }, []string{"warn proxies/modes cannot look for the rules of all modes: the door is stuck", "warn proxy/rules cannot look for rules: the door is stuck"}},
		{Before, func(m *machine) { m.processes = []int{7, 8} }, []string{"warn proxies/processes a kube-proxy runs: process 7, 8"}},
		{After, func(m *machine) { m.processes = []int{7, 8} }, []string{"warn proxies/processes several kube-proxies run: processes 7, 8"}},
		{After, func(m *machine) { m.failing = "Processes" }, []string{"warn proxies/processes cannot look for other processes: the door is stuck"}},
		{Before, func(m *machine) { m.taken["0.0.0.0:10256"] = true }, []string{"fail ports/servers healthz: listen 0.0.0.0:10256: address already in use"}},
		{Before, func(m *machine) {
			m.taken["127.0.0.1:10249"], m.pages["127.0.0.1:10249/proxyMode"] = true, "200 iptables"
		}, []string{"warn ports/servers metrics: 127.0.0.1:10249 is in use, and a kube-proxy runs"}},
		{Before, func(m *machine) {
			m.node.MetricsAddress, m.node.HealthzAddress, m.taken["0.0.0.0:10256"] = "", "", true
		}, nil},
		{Before, func(m *machine) { m.node.MetricsAddress, m.taken["0.0.0.0:10256"] = "", true }, []string{"fail ports/servers healthz: listen 0.0.0.0:10256: address already in use"}},
		{Before, func(m *machine) { m.taken[":30000"] = true }, []string{"fail ports/healthCheckNodePorts health check node ports in use: 30000"}},
		{Before, func(m *machine) { m.taken[":30000"], m.pages["127.0.0.1:10249/proxyMode"] = true, "200 iptables" }, []string{
			"warn ports/healthCheckNodePorts health check node ports in use: 30000, and a kube-proxy runs"}},
		{Before, func(m *machine) { m.api.err = errDoor }, []string{"warn ports/healthCheckNodePorts cannot list the health check node ports of Services: the door is stuck",
			"fail api/rights cannot ask the API server: the door is stuck", "fail api/node cannot read the Node n1: the door is stuck"}},
		{Before, func(m *machine) { m.api = nil }, []string{
			"warn api/rights no API server is configured: the rights, the Node and the health check node ports of Services are not checked"}},
		{After, func(m *machine) { m.api.denied = []string{"watch endpointslices", "create events"} }, []string{"fail api/rights the API server does not allow: watch endpointslices, create events"}},
		{After, func(m *machine) { m.api.denied = []string{"list servicecidrs", "create events"} }, []string{"warn api/rights the API server does not allow: list servicecidrs, create events"}},
		{After, func(m *machine) { m.api.exists = false }, []string{"fail api/node there is no Node n1"}},
		{After, func(m *machine) { m.api.addrs = m.addrs[:1] }, nil},
		{After, func(m *machine) { m.api.addrs, m.node.Families = m.addrs[:1], []cluster.Family{cluster.IPv6} }, []string{"warn api/node Node n1 has no IPv6 address"}},
		{After, func(m *machine) { m.api.addrs = nil }, []string{"warn api/node Node n1 has no IPv4 address", "warn api/node Node n1 has no IPv6 address"}},
		{After, func(m *machine) { m.addrs = m.addrs[1:] }, []string{
			"warn api/node address 192.0.2.1 of Node n1 is not on an interface here: node ports on primary addresses do not get packets to it"}},
		{After, func(m *machine) { m.failing = "Interfaces" }, []string{"fail api/node the door is stuck"}},
		{After, func(m *machine) {
			m.pages["0.0.0.0:10256/healthz"] = `200 {"healthy": true, "status": {"IPv4": {"lastUpdated": "2026-11-28T18:00:00Z", "healthy": true}}, "waitingFor": ["the Node object of this node"]}`
		}, []string{"warn proxy/health /healthz answers 200, and it waits for the Node object of this node"}},
		{After, func(m *machine) { delete(m.pages, "0.0.0.0:10256/healthz") }, []string{"fail proxy/health the proxy does not answer: connection refused"}},
		{After, func(m *machine) {
			m.pages["0.0.0.0:10256/healthz"] = `503 {"nodeEligible": true, "healthy": false, "waitingFor": ["the API server to list services (forbidden)"]}`
		}, []string{`fail proxy/health /healthz answers 503: it waits for the API server to list services (forbidden)`}},
		{After, func(m *machine) {
			m.pages["0.0.0.0:10256/healthz"] = `503 {"nodeEligible": false, "status": {"IPv4": {"healthy": false, "error": "busy"}, "IPv6": {"lastUpdated": "2026-11-28T18:00:00Z"}}}`
		}, []string{`fail proxy/health /healthz answers 503: IPv4: busy; IPv6: the last sync was too long ago; the Node is being deleted, or the cluster autoscaler is about to`}},
		{After, func(m *machine) {
			m.pages["0.0.0.0:10256/healthz"] = `503 {"nodeEligible": true, "status": {"IPv4": {"lastUpdated": null, "healthy": false}}}`
			m.pages["127.0.0.1:10249/api/v1alpha1/info"] = "200 {}"
			m.present = append(m.present, "iptables")
		}, []string{"warn proxies/modes rules of mode iptables are present",
			`fail proxy/health /healthz answers 503: IPv4: no sync has succeeded yet`, "warn proxy/rules there are rules of mode nftables, but the proxy has not finished a sync yet: they may be those of an earlier one"}},
		{After, func(m *machine) {
			m.pages["0.0.0.0:10256/healthz"] = `503 {"healthy": false, "waitingFor": "process 7"}`
		}, []string{
			`fail proxy/health /healthz answers 503: it waits: process 7`}},
		{After, func(m *machine) { m.pages["0.0.0.0:10256/healthz"] = "503 {}" }, []string{`fail proxy/health /healthz answers 503: {}`}},
		{After, func(m *machine) { m.pages["0.0.0.0:10256/healthz"] = "503 " + strings.Repeat("x", 400) }, []string{"fail proxy/health /healthz answers 503: " + strings.Repeat("x", 300) + "..."}},
		{After, func(m *machine) { m.pages["0.0.0.0:10256/healthz"] = "503 " + strings.Repeat("x", 300) }, []string{"fail proxy/health /healthz answers 503: " + strings.Repeat("x", 300)}},
		{After, func(m *machine) { m.node.HealthzAddress = "" }, []string{"warn proxy/health healthzBindAddress is empty: the proxy cannot be asked for its health"}},
		{After, func(m *machine) { m.node.MetricsAddress = "" }, nil},
		{After, func(m *machine) { delete(m.pages, "127.0.0.1:10249/proxyMode") }, []string{"warn proxy/mode 127.0.0.1:10249/proxyMode does not answer"}},
		{After, func(m *machine) {
			m.pages["127.0.0.1:10249/api/v1alpha1/info"] = `200 {"sync": {"families": [{"family": "IPv4", "error": "busy"}, {"family": "IPv6"}]}, "observed": {"HealthCheckNotServed": 2}}`
		}, []string{"fail proxy/rules IPv4: the last sync failed: busy", "warn proxy/services Services with the problem HealthCheckNotServed: 2"}},
		{After, func(m *machine) {
			m.pages["127.0.0.1:10249/api/v1alpha1/info"] = `200 {"sync": {}, "problems": [{"reason": "InvalidManifest", "message": "a.yaml:3: no"}]}`
		}, []string{"warn proxy/inputs InvalidManifest: a.yaml:3: no"}},
		{After, func(m *machine) { delete(m.pages, "127.0.0.1:10249/api/v1alpha1/info") }, nil},
		{After, func(m *machine) { m.pages["127.0.0.1:10249/proxyMode"] = "200 iptables\n" }, []string{"fail proxy/mode the proxy runs in mode iptables, not nftables"}},
	}
}

// TestOutcomes has a row for every outcome that is not good.
func TestOutcomes(t *testing.T) {
	for _, test := range slices.Concat(machineOutcomes(), proxyOutcomes()) {
		m := good(test.stage)
		test.wrong(m)
		var got []string
		for _, r := range m.run(t, test.stage) {
			if r.Status != OK {
				got = append(got, fmt.Sprintf("%s %s/%s %s", r.Status, r.Group, r.Check, r.Message))
			}
			if (r.Fix == "") != (r.Status == OK) {
				t.Errorf("the fix of %+v", r)
			}
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("stage %d (-want +got):\n%s", test.stage, diff)
		}
	}
}

func TestSkipAndWorst(t *testing.T) {
	m := good(Before)
	m.settings["net/ipv4/ip_forward"] = "0"
	m.holder = "somebody"
	for _, test := range []struct {
		skip []string
		want Status
	}{{nil, Fail}, {[]string{"settings"}, Warn}, {[]string{"settings", "proxies"}, OK}, {Groups(), OK}} {
		if got := Worst(m.run(t, Before, test.skip...)); got != test.want {
			t.Errorf("without %v: %s, want %s", test.skip, got, test.want)
		}
	}
}
