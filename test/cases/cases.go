// Package cases defines the proxy's behaviour, one readable file for each: the input is objects, the output is the plan,
// the rulesets and the packets' verdicts.
//
// A file is a txtar archive. Its comment describes the behaviour; its parts are
//
//	objects.yaml   the API objects
//	options        settings that differ from the default, one "name: value" per line (see Options)
//	packets        one packet and its expected result per line (see Packet)
//	plan           the result of plan.Compute          (golden)
//	nftables       the table of the nftables backend   (golden)
//	iptables       the rules of the iptables backend   (golden)
//
// The last two contain only the difference to testdata/skeleton.txtar, the rules of a node without Services.
//
// A case can have several steps: the parts "objects.yaml 2" and "packets 2" change objects in one update and then list
// packets again; objects with a deletionTimestamp are deleted. Each step is a Case; only its part "plan 2" is golden.
//
// The objects and packets are written for the lab of test/netns, in IPv4. They are read a second time in IPv6, with every
// address replaced by its counterpart, unless the options contain "families: as written".
package cases

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/tools/txtar"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/source/manifests"
)

// Node is the name of the node that the proxy runs on.
const Node = "node1"

// Case is one behaviour in one address family.
type Case struct {
	// Name is the file's name without its extension, a slash, and the family.
	Name string
	// Path is the file, Archive its parts as in the file.
	Path    string
	Archive *txtar.Archive
	Family  cluster.Family

	// Objects are the API objects in the order of the file, and Snapshot is the result of adding them.
	Objects  []runtime.Object
	Snapshot *cluster.Snapshot
	Options  *plan.Options
	Packets  []Packet
	// NodeAddresses are additional addresses of node1.
	NodeAddresses []netip.Addr
	// Before is the previous step; nil for the first.
	Before *Case

	step    int // from 2 on; 0 is the first
	builder *cluster.Builder
}

// Packet is a packet and its expected result, written as
//
//	client > 10.96.0.10:80/TCP = pod1a pod2a, seen as node1
//	pod1a > 10.96.0.11:53/UDP = refused
//
// The result lists the endpoints that share the connections, and the host whose address they see as the source; or it
// is refused, dropped, or passed (left alone). With session affinity a client uses one endpoint ("one of"), or the same
// endpoint as in the previous line ("the same of"), which may have used another address or be the last line of the
// previous step:
//
//	client > 10.96.0.10:80/TCP = one of pod1a pod2a, seen as node1
//	client > 192.0.2.10:80/TCP = the same of pod1a pod2a, seen as node1
//
// A packet of node1 itself may be refused or dropped in its output hook. Then send(2) fails with EPERM, and the
// answer says "at send". TCP senders do not see the difference, so only UDP and SCTP say so:
//
//	node1 > 10.96.0.10:53/UDP = refused at send
//
// If a backend is known to differ from the plan, its result follows; it has no endpoints:
//
//	pod1b > 10.96.0.10:9999/TCP = refused (iptables: passed)
type Packet struct {
	Line     int
	From     string
	To       netip.AddrPort
	Protocol cluster.Protocol
	Verdict  plan.Verdict
	// AtSend reports that the sender's own send(2) fails. It depends on the hook that a backend uses, not on the plan.
	AtSend    bool
	Choice    Choice
	Endpoints []string
	SeenAs    string
	// Except are the results of backends that differ.
	Except map[string]plan.Verdict
}

// By returns the packet with the expected result for a backend.
func (p Packet) By(backend string) Packet {
	if verdict, ok := p.Except[backend]; ok {
		p.Verdict, p.AtSend, p.Endpoints, p.SeenAs = verdict, false, nil, ""
	}
	return p
}

// Choice is how a client's connections are distributed over the endpoints.
type Choice string

// Each connection may go to any endpoint; all go to the same one; all go to the endpoint of the previous line.
const (
	Any     Choice = ""
	OneOf   Choice = "one of "
	TheSame Choice = "the same of "
)

// With returns the case's snapshot after a change, and the problems that it reports. The case itself does not change.
func (c *Case) With(change func(*cluster.Update)) (*cluster.Snapshot, error) {
	builder := c.newBuilder(c.Objects)
	err := builder.Update(func(u *cluster.Update) {
		manifests.Apply(u, c.Objects)
		change(u)
	})
	return builder.Snapshot(), err
}

// Plan computes the case's plan, based on the plan of the previous step if there is one.
func (c *Case) Plan() *plan.Plan {
	var before *plan.Plan
	if c.Before != nil {
		before = c.Before.Plan()
	}
	return plan.Compute(c.Snapshot, c.Options, before)
}

// Part returns the part of the archive with that name, or "" if there is none.
func (c *Case) Part(name string) string { return part(c.Archive, c.partName(name)) }

func (c *Case) partName(name string) string {
	if c.step > 0 {
		return fmt.Sprint(name, " ", c.step)
	}
	return name
}

func part(archive *txtar.Archive, name string) string {
	for _, file := range archive.Files {
		if file.Name == name {
			return string(file.Data)
		}
	}
	return ""
}

// Load reads every case of a folder, in each of its families.
func Load(dir string) ([]*Case, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.txtar"))
	if err != nil {
		return nil, err
	}
	if len(paths) == 0 {
		return nil, fmt.Errorf("no case in %s", dir)
	}
	var all []*Case
	for _, path := range paths {
		archive, err := txtar.ParseFile(path)
		if err != nil {
			return nil, err
		}
		families := []cluster.Family{cluster.IPv4, cluster.IPv6}
		if strings.Contains(part(archive, "options"), "families: as written") {
			families = families[:1]
		}
		for _, family := range families {
			c := &Case{
				Name: strings.TrimSuffix(filepath.Base(path), ".txtar") + "/" + family.String(),
				Path: path, Archive: archive, Family: family,
			}
			if err := c.read(); err != nil {
				return nil, fmt.Errorf("%s: %w", c.Name, err)
			}
			steps, err := c.steps()
			if err != nil {
				return nil, fmt.Errorf("%s: %w", c.Name, err)
			}
			all = append(all, steps...)
		}
	}
	return all, nil
}

// For reports whether the packets of a case are for a backend: the option "backend" names the only one.
func (c *Case) For(backend string) bool {
	first := c
	for first.Before != nil {
		first = first.Before
	}
	_, only, found := strings.Cut(first.Part("options"), "backend: ")
	return !found || strings.TrimSpace(only) == backend
}

// Manifest returns the case's objects as YAML, in the addresses of its family.
func (c *Case) Manifest() string { return c.translate(c.Part("objects.yaml")) }

// translate replaces the IPv4 addresses of a text if the case is read in IPv6.
func (c *Case) translate(text string) string {
	if c.Family == cluster.IPv6 {
		return toIPv6(text)
	}
	return text
}

func (c *Case) read() error {
	var err error
	if c.Before == nil {
		if c.Options, c.NodeAddresses, err = parseOptions(c.translate(c.Part("options"))); err != nil {
			return err
		}
	}
	objects, err := parse(c.Path, []byte(c.Manifest()))
	if err != nil {
		return err
	}
	c.build(objects)
	for i, line := range strings.Split(c.translate(c.Part("packets")), "\n") {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		p, err := parsePacket(line)
		if err != nil {
			return fmt.Errorf("packets, line %d: %w", i+1, err)
		}
		p.Line = i + 1
		c.Packets = append(c.Packets, p)
	}
	return nil
}

// parse parses manifests. It returns an error if an object is invalid or of a kind that is not served.
func parse(name string, data []byte) ([]runtime.Object, error) {
	file := manifests.Parse(name, data, false)
	if file.Err == nil && len(file.Ignored) > 0 {
		return nil, fmt.Errorf("%s: kinds that are not served: %v", name, file.Ignored)
	}
	return file.Objects, file.Err
}

// newBuilder returns a builder that contains only the lab's node1, without its Node object if objects contain a Node.
func (c *Case) newBuilder(objects []runtime.Object) *cluster.Builder {
	isNode := func(object runtime.Object) bool { _, ok := object.(*corev1.Node); return ok }
	builder := cluster.NewBuilder(Node)
	_ = builder.Update(func(u *cluster.Update) {
		if !slices.ContainsFunc(objects, isNode) {
			u.SetNode(node())
		}
		u.SetInterfaces(slices.Concat(Interfaces, c.NodeAddresses))
	})
	return builder
}

// Snapshot returns the snapshot of objects, which are YAML written in IPv4, in a family.
func Snapshot(objects string, family cluster.Family) (*cluster.Snapshot, error) {
	if family == cluster.IPv6 {
		objects = toIPv6(objects)
	}
	parsed, err := parse("objects.yaml", []byte(objects))
	if err != nil {
		return nil, err
	}
	builder := (&Case{}).newBuilder(parsed)
	err = builder.Update(func(u *cluster.Update) { manifests.Apply(u, parsed) })
	return builder.Snapshot(), err
}

// Interfaces are the addresses of the lab's node1.
var Interfaces = []netip.Addr{
	netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("::1"),
	netip.MustParseAddr("172.18.0.11"), netip.MustParseAddr("fd00:172:18::b"),
	netip.MustParseAddr("10.244.1.1"), netip.MustParseAddr("fd00:10:244:1::1"),
}

// node returns the Node object of node1, unless a case contains one.
func node() *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: Node},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{
			{Type: corev1.NodeInternalIP, Address: "172.18.0.11"},
			{Type: corev1.NodeInternalIP, Address: "fd00:172:18::b"},
		}},
	}
}

// parseOptions parses the options part. The defaults are those of a cluster with dual-stack pod CIDRs. addresses are
// additional addresses of node1.
func parseOptions(text string) (options *plan.Options, addresses []netip.Addr, err error) {
	o := &plan.Options{
		NodePorts: plan.NodePortAddresses{Primary: true},
		LocalTraffic: plan.LocalTraffic{CIDRs: []netip.Prefix{
			netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("fd00:10:244::/48"),
		}},
	}
	for line := range strings.SplitSeq(strings.TrimSpace(text), "\n") {
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		switch name {
		case "", "families", "backend":
		case "nodeAddress":
			var addr netip.Addr
			addr, err = netip.ParseAddr(value)
			addresses = append(addresses, addr)
		case "masqueradeAll":
			o.MasqueradeAll, err = strconv.ParseBool(value)
		case "singleStack":
			o.SingleStack, err = strconv.ParseBool(value)
		case "balancing": // how many slots a table has; 0 if the backend has none
			o.Balancing.On = true
			o.Balancing.Slots, err = strconv.Atoi(value)
		case "connectionLimits": // of the namespace default; none honours only annotations
			o.Fences.On = true
			if value != "none" {
				var fence cluster.Fence
				fence, err = cluster.ParseFence(value)
				o.Fences.Namespaces = map[string]cluster.Fence{"default": fence}
			}
		case "serveExternalIPs":
			o.ServeExternalIPs, err = strconv.ParseBool(value)
		case "resetGoneEndpoints":
			o.ResetGoneEndpoints, err = strconv.ParseBool(value)
		case "canary":
			var listener netip.AddrPort
			listener, err = netip.ParseAddrPort(value)
			o.Canary = append(o.Canary, listener)
		case "loopbackNodePorts":
			o.NodePorts.Loopback, err = strconv.ParseBool(value)
		case "localhost": // the families whose TCP node ports are forwarded there; everything else is rejected
			o.Localhost.Reject = true
			o.Localhost.Forwarded, err = parseFamilies(value)
		case "nodeCIDR":
			o.LocalTraffic = plan.LocalTraffic{}
			o.NodeCIDR, err = strconv.ParseBool(value)
		case "localInterface":
			o.LocalTraffic = plan.LocalTraffic{Interface: value}
		case "detectLocal":
			o.LocalTraffic = plan.LocalTraffic{}
		case "nodePortAddresses":
			o.NodePorts = plan.NodePortAddresses{Loopback: o.NodePorts.Loopback}
			for cidr := range strings.SplitSeq(value, ",") {
				var prefix netip.Prefix
				prefix, err = netip.ParsePrefix(cidr)
				o.NodePorts.CIDRs = append(o.NodePorts.CIDRs, prefix)
			}
		default:
			return nil, nil, fmt.Errorf("unknown option %q", name)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("option %s: %w", name, err)
		}
	}
	return o, addresses, nil
}

// parseFamilies parses a list of families: "IPv4 IPv6", or "none".
func parseFamilies(value string) (families []cluster.Family, err error) {
	for word := range strings.FieldsSeq(value) {
		switch word {
		case "IPv4":
			families = append(families, cluster.IPv4)
		case "IPv6":
			families = append(families, cluster.IPv6)
		case "none":
		default:
			err = fmt.Errorf("unknown family %q: use IPv4, IPv6 or none", word)
		}
	}
	return families, err
}

var (
	packetLine = regexp.MustCompile(`^(\S+) > (\S+)/(TCP|UDP|SCTP) = ([^(]+?)( \(([a-z]+): (\S+)\))?$`)
	verdicts   = map[string]plan.Verdict{"refused": plan.Reject, "dropped": plan.Drop, "passed": plan.Pass}
)

func parsePacket(line string) (Packet, error) {
	fields := packetLine.FindStringSubmatch(line)
	if fields == nil {
		return Packet{}, fmt.Errorf("%q is not of the form HOST > ADDRESS:PORT/PROTOCOL = RESULT [(BACKEND: RESULT)]", line)
	}
	p := Packet{From: fields[1]}
	var err error
	if p.To, err = netip.ParseAddrPort(fields[2]); err != nil {
		return p, err
	}
	p.Protocol = map[string]cluster.Protocol{"TCP": cluster.TCP, "UDP": cluster.UDP, "SCTP": cluster.SCTP}[fields[3]]
	if backend := fields[6]; backend != "" {
		verdict, known := verdicts[fields[7]]
		if !known {
			return p, fmt.Errorf("(%s: %s): the result of a backend must be refused, dropped or passed", backend, fields[7])
		}
		p.Except = map[string]plan.Verdict{backend: verdict}
	}
	answer, atSend := strings.CutSuffix(fields[4], " at send")
	if verdict, known := verdicts[answer]; known {
		p.Verdict, p.AtSend = verdict, atSend
		return p, nil
	}
	for _, choice := range []Choice{OneOf, TheSame} {
		if rest, ok := strings.CutPrefix(fields[4], string(choice)); ok {
			p.Choice, fields[4] = choice, rest
		}
	}
	endpoints, seenAs, ok := strings.Cut(fields[4], ", seen as ")
	if !ok {
		return p, fmt.Errorf("result %q: use refused, dropped, passed, or \"ENDPOINTS, seen as HOST\"", fields[4])
	}
	p.Endpoints, p.SeenAs = strings.Fields(endpoints), seenAs
	slices.Sort(p.Endpoints)
	return p, nil
}

var (
	ipv4       = regexp.MustCompile(`\b(\d+)\.(\d+)\.(\d+)\.(\d+)\b(/\d+)?(:\d+)?`)
	addressing = strings.NewReplacer("addressType: IPv4", "addressType: IPv6", "ipFamilies: [IPv4]", "ipFamilies: [IPv6]")
)

// toIPv6 replaces every IPv4 address, CIDR and address with port by its counterpart in the lab.
func toIPv6(text string) string {
	return addressing.Replace(ipv4.ReplaceAllStringFunc(text, func(match string) string {
		m := ipv4.FindStringSubmatch(match)
		var n [4]int
		for i := range n {
			n[i], _ = strconv.Atoi(m[i+1])
		}
		addr, bits := counterpart(n, m[5])
		if m[6] != "" {
			return "[" + addr + "]" + m[6]
		}
		return addr + bits
	}))
}

// counterpart returns the IPv6 address that corresponds to an IPv4 address, with the same numbers in the same places;
// and the length of the corresponding prefix.
func counterpart(n [4]int, bits string) (addr, newBits string) {
	lengths := map[string]string{"": "", "/0": "/0", "/8": "/32", "/16": "/96", "/24": "/112", "/32": "/128"}
	switch {
	case n == [4]int{}:
		addr = "::"
	case n[0] == 127:
		addr = "::1"
	case n[0] == 10 && n[1] == 244: // pods: each node has a /64 of fd00:10:244::/48
		lengths["/16"], lengths["/24"] = "/48", "/64"
		addr = fmt.Sprintf("fd00:10:244:%d::%x", n[2], n[3])
	case n[2] == 0:
		addr = fmt.Sprintf("fd00:%d:%d::%x", n[0], n[1], n[3])
	default:
		addr = fmt.Sprintf("fd00:%d:%d::%x:%x", n[0], n[1], n[2], n[3])
	}
	return netip.MustParseAddr(addr).String(), lengths[bits]
}
