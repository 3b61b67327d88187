package packets

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/status/v1alpha1"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft/trace"
)

var update = flag.Bool("update", false, "rewrite testdata")

// nodePorts are the addresses on which node ports are served: not all of the Node.
func nodePorts() []string { return []string{"127.0.0.1", "172.18.0.11"} }

// services are default/web, which is balanced, and default/gone, which has no endpoint.
func services() []v1alpha1.Service {
	port := func(verdict, reason string, endpoints []v1alpha1.Endpoint, addresses ...v1alpha1.Address) []v1alpha1.Port {
		for i := range addresses {
			addresses[i].Verdict, addresses[i].Reason = verdict, reason
		}
		return []v1alpha1.Port{{Name: "http", Protocol: "TCP", Port: 80, Addresses: addresses, Endpoints: endpoints}}
	}
	return []v1alpha1.Service{
		{Namespace: "default", Name: "web", Time: &time.Time{}, ClusterIPs: []string{"10.96.0.10"}, Ports: port("Balance", "2 ready endpoints",
			[]v1alpha1.Endpoint{{Address: "10.244.2.2:8080", Location: "OtherNode"}, {Address: "10.244.1.2:8080", Location: "ThisNode"}},
			v1alpha1.Address{Address: "10.96.0.10", Kind: "ClusterIP", Port: 80}, v1alpha1.Address{Address: "0.0.0.0", Kind: "NodePort", Port: 30080})},
		{Namespace: "default", Name: "ranged", SourceRanges: []string{"198.51.100.0/24"}, Ports: port("Balance", "1 ready endpoint", nil,
			v1alpha1.Address{Address: "192.0.2.10", Kind: "LoadBalancerIP", Port: 80})},
		{Namespace: "default", Name: "bounded", ConnectionLimits: "5 new a second", Ports: port("Balance", "1 ready endpoint", nil,
			v1alpha1.Address{Address: "10.96.0.31", Kind: "ClusterIP", Port: 80})},
		{Namespace: "default", Name: "long", FastPath: true, Ports: port("Balance", "1 ready endpoint", nil,
			v1alpha1.Address{Address: "10.96.0.30", Kind: "ClusterIP", Port: 80})},
		{Namespace: "default", Name: "gone", Ports: port("Reject", "no usable endpoint", nil, v1alpha1.Address{Address: "10.96.0.21", Kind: "ClusterIP", Port: 80})},
		{Namespace: "default", Name: "lost", Ports: port("NotServed", "default/gone has the address", nil, v1alpha1.Address{Address: "10.96.0.21", Kind: "ClusterIP", Port: 80})},
	}
}

// step is an event with what its chain and rule are.
type step struct {
	trace.Event
	trace.Description
}

// way builds the events of one packet.
type way struct {
	id      uint32
	headers trace.Headers
	steps   []step
}

const syn = 1 << 1

// from begins a packet; in is empty for those of the node.
func from(id uint32, protocol byte, source, destination, in string) *way {
	w := &way{id: id, headers: trace.Headers{Protocol: protocol, Source: end(source), Destination: end(destination), In: in}}
	if protocol == protoTCP {
		w.headers.Flags = syn
	}
	return w.add(step{Event: trace.Event{Kind: trace.Rule, Family: "ip", Table: trace.Table, Chain: trace.Selected, Handle: 3, Verdict: "continue"}}, true)
}

func end(text string) netip.AddrPort {
	if addr, err := netip.ParseAddr(text); err == nil {
		return netip.AddrPortFrom(addr, 0)
	}
	return netip.MustParseAddrPort(text)
}

// add adds an event, with the headers if it is the first in a base chain.
func (w *way) add(s step, base bool) *way {
	s.Packet = w.id
	if base {
		headers := w.headers
		s.Headers = &headers
	}
	w.steps = append(w.steps, s)
	return w
}

// chain passes a base chain: hook/table/chain, then verdicts such as "jump services", "goto x", "accept", with a comment after a #.
func (w *way) chain(hook, kind, table, chain string, verdicts ...string) *way {
	name, base := chain, chain
	for i, verdict := range verdicts {
		text, comment, _ := strings.Cut(verdict, " # ")
		word, to, _ := strings.Cut(text, " ")
		s := step{Event: trace.Event{Kind: trace.Rule, Handle: uint64(len(w.steps) + 10), Chain: name, Verdict: word, To: to}}
		s.Family, s.Table, _ = strings.Cut(table, " ")
		s.Comment = comment
		switch word {
		case "policy":
			s.Kind, s.Handle, s.Chain, s.Verdict, s.To = trace.Policy, 0, base, to, ""
		case "reject":
			s.Verdict, s.Rejects = "drop", true
		case "jump", "goto":
			name = to
		}
		if s.Chain == base {
			s.Hook, s.Type = hook, kind
		}
		w.add(s, i == 0)
	}
	return w
}

// ends passes the last chain of a hook.
func (w *way) ends(chain string) *way {
	return w.add(step{Event: trace.Event{Kind: trace.Policy, Family: "ip", Table: trace.Table, Chain: chain, Verdict: "accept"}}, true)
}

// translated changes the destination, and the source unless it is empty.
func (w *way) translated(source, destination string) *way {
	w.headers.Destination = end(destination)
	if source != "" {
		w.headers.Source = end(source)
	}
	return w
}

// leaves sets the output interface.
func (w *way) leaves(out string) *way { w.headers.Out = out; return w }

// numbered changes the number that the kernel has for the packet, and its interface.
func (w *way) numbered(id uint32, in string) *way {
	w.id, w.headers.In, w.headers.Out = id, in, ""
	return w
}

// again begins a new packet with the same number.
func (w *way) again(next *way) *way { w.steps = append(w.steps, next.steps...); return w }

const (
	pod    = "10.244.1.3:40000"
	web    = "10.96.0.10:80"
	there  = "10.244.2.2:8080"
	rules  = "ip kube-proxy"
	node   = "172.18.0.11:40000"
	client = "203.0.113.5:40000"
)

// ways are packets, by the name of the golden file.
func ways() map[string]*way {
	toWeb := func(id uint32) *way {
		return from(id, protoTCP, pod, web, "cbr0").
			chain("prerouting", "nat", rules, "nat-prerouting", "jump services", "goto internal-2", "goto pick-2", "accept").
			translated("", there)
	}
	chosen := func(id uint32) *way { return toWeb(id).ends(trace.AfterPrerouting) }
	return map[string]*way{
		"nftables": chosen(1).leaves("eth0").chain("forward", "filter", rules, "filter-forward", "goto translated", "policy accept").ends(trace.AfterPostrouting),
		"established": from(1, protoTCP, pod, web, "cbr0").chain("prerouting", "filter", rules, "filter-prerouting", "policy accept").
			translated("", there).ends(trace.AfterPrerouting).leaves("eth0").ends(trace.AfterPostrouting),
		"iptables-node-port": from(1, protoTCP, client, "172.18.0.11:30080", "eth0").
			chain("prerouting", "nat", "ip nat", "PREROUTING", "jump KUBE-SERVICES # kubernetes service portals", "jump KUBE-NODEPORTS",
				"jump KUBE-EXT-K6DFPUR2VHBLU6EI # default/web:http", "jump KUBE-MARK-MASQ", "continue", "goto KUBE-SVC-K6DFPUR2VHBLU6EI # default/web:http",
				"jump KUBE-SEP-OORGQSBIFXI7NHIM # default/web:http -> 10.244.2.2:8080", "accept").
			translated("", there).ends(trace.AfterPrerouting).leaves("eth0").
			chain("postrouting", "nat", "ip nat", "POSTROUTING", "jump KUBE-POSTROUTING", "accept").
			translated("172.18.0.11:6211", there).ends(trace.AfterPostrouting),
		"node-to-own-pod": from(1, protoTCP, node, web, "").chain("output", "nat", rules, "nat-output", "jump services", "goto pick-2", "accept").
			translated("", "10.244.1.2:8080").ends(trace.AfterOutput).leaves("cbr0").ends(trace.AfterPostrouting),
		"no-endpoint": from(1, protoTCP, pod, "10.96.0.21:80", "cbr0").ends(trace.AfterPrerouting).leaves("eth0").
			chain("forward", "filter", rules, "filter-forward", "goto unserved", "reject"),
		"foreign-rule":   chosen(1).leaves("eth0").chain("forward", "filter", "inet firewalld", "filter_FORWARD", "jump filter_FORWARD_POLICIES", "reject # no pods"),
		"foreign-policy": chosen(1).leaves("eth0").chain("forward", "filter", "ip filter", "FORWARD", "policy drop"),
		"vanished":       chosen(1),
		"hairpin": from(1, protoTCP, "10.244.2.2:40000", web, "cbr0").
			chain("prerouting", "nat", rules, "nat-prerouting", "jump services", "goto internal-2", "goto pick-1", "accept").
			translated("", there).ends(trace.AfterPrerouting),
		"vanished-in-forward": chosen(1).leaves("eth0").chain("forward", "filter", rules, "filter-forward", "policy accept"),
		"bridge":              chosen(1).numbered(2, "cbr0").leaves("eth0").chain("forward", "filter", rules, "filter-forward", "policy accept").ends(trace.AfterPostrouting),
		// A node port's number at an address of others.
		"other-port": from(1, protoTCP, pod, "192.0.2.7:30080", "cbr0").ends(trace.AfterPrerouting).leaves("eth0").ends(trace.AfterPostrouting),
		"loopback": from(1, protoTCP, "172.18.0.11:40000", "172.18.0.11:9000", "").ends(trace.AfterOutput).leaves("lo").ends(trace.AfterPostrouting).
			numbered(2, "lo").again(from(2, protoTCP, "172.18.0.11:40000", "172.18.0.11:9000", "lo").ends(trace.AfterPrerouting).ends(trace.AfterInput)),
		"number-again": chosen(1).leaves("eth0").ends(trace.AfterPostrouting).again(chosen(1).leaves("eth0").ends(trace.AfterPostrouting)),
		// The second segment's number on the bridge is that of the first one.
		"number-again-on-bridge": chosen(1).numbered(2, "cbr0").leaves("eth0").chain("forward", "filter", rules, "filter-forward", "policy accept").
			ends(trace.AfterPostrouting).again(chosen(3).numbered(2, "cbr0").leaves("eth0").
			chain("forward", "filter", rules, "filter-forward", "policy accept").ends(trace.AfterPostrouting)),
		"stale": from(1, protoTCP, pod, web, "cbr0").translated("", "10.244.2.99:8080").ends(trace.AfterPrerouting).leaves("eth0").ends(trace.AfterPostrouting),
		"wrong-port": from(1, protoTCP, pod, "10.96.0.10:81", "cbr0").ends(trace.AfterPrerouting).leaves("eth0").
			chain("forward", "filter", rules, "filter-forward", "jump undefined-cluster-ports", "reject"),
		"source-range": from(1, protoTCP, pod, "192.0.2.10:80", "cbr0").chain("prerouting", "nat", rules, "nat-prerouting", "jump services", "goto guarded-external-1", "jump source-ranges", "drop"),
		"limited": from(1, protoTCP, pod, "10.96.0.31:80", "cbr0").chain("prerouting", "nat", rules, "nat-prerouting", "jump services",
			"goto fenced-0123456789abcdef-internal-1", "jump fence-0123456789abcdef", "goto limited", "drop"),
		"fast-path": from(1, protoTCP, pod, "10.96.0.30:80", "cbr0").chain("prerouting", "nat", rules, "nat-prerouting", "jump services", "goto pick-1", "accept").
			translated("", there).ends(trace.AfterPrerouting).leaves("eth0").ends(trace.AfterPostrouting),
		"queued":      toWeb(1).chain("forward", "filter", "inet suricata", "forward", "queue"),
		"untouched":   from(1, protoTCP, pod, web, "cbr0").ends(trace.AfterPrerouting).leaves("eth0").ends(trace.AfterPostrouting),
		"ping-no-one": from(1, 1, "10.244.1.3", "192.0.2.7", "cbr0").ends(trace.AfterPrerouting).leaves("eth0").ends(trace.AfterPostrouting),
	}
}

// tracer is a trace.Tracer of events that a test adds, and fails if it has an error.
type tracer struct {
	events       []trace.Event
	descriptions map[string]trace.Description
	lost         bool
	err          error
}

func (s *step) rule() string { return fmt.Sprint(s.Family, s.Table, s.Chain, s.Handle) }

// Next is part of [trace.Tracer].
func (s *tracer) Next(ctx context.Context) (events []trace.Event, lost bool, _ error) {
	if s.err == nil && !s.lost && len(s.events) == 0 {
		<-ctx.Done()
	}
	events, lost, s.events, s.lost = s.events, s.lost, nil, false
	return events, lost, s.err
}

// Describe is part of [trace.Tracer].
func (s *tracer) Describe(e trace.Event) (trace.Description, error) {
	return s.descriptions[(&step{Event: e}).rule()], nil
}

// Close is part of [trace.Tracer].
func (s *tracer) Close() error { return nil }

// follow traces what send sends.
func follow(t *testing.T, count int, send func(kernel *tracer)) (shown []*v1alpha1.PacketTrace, r Result, err error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		kernel := &tracer{descriptions: map[string]trace.Description{}}
		send(kernel)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		all := Trace{Tracer: kernel, Names: NewNames(nodePorts(), services()...), Count: count, Show: func(p *v1alpha1.PacketTrace) error {
			shown = append(shown, p)
			return nil
		}}
		r, err = all.Follow(ctx)
	})
	return shown, r, err
}

// send sends a packet.
func (w *way) send(kernel *tracer) {
	for _, s := range w.steps {
		kernel.descriptions[s.rule()] = s.Description
		kernel.events = append(kernel.events, s.Event)
	}
}

// TestGoldenReports compares the reports on packets with golden files, for a pipe and for a terminal of 60 columns.
func TestGoldenReports(t *testing.T) {
	for name, way := range ways() {
		t.Run(name, func(t *testing.T) {
			shown, r, err := follow(t, 10, way.send)
			if err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			for _, width := range []int{0, 60} {
				fmt.Fprintf(&out, "-- %d columns; %d packets, %d refused, %d unknown --\n", width, r.Packets, r.Refused, r.Unknown)
				for _, p := range shown {
					out.WriteString(Text(p, width))
				}
			}
			path := filepath.Join("testdata", name+".txt")
			if *update {
				if err := os.WriteFile(path, out.Bytes(), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), out.String()); diff != "" {
				t.Errorf("-golden +now; run make golden:\n%s", diff)
			}
		})
	}
}

// TestFollow counts packets, and ends when there are enough, when the kernel fails and when printing does.
func TestFollow(t *testing.T) {
	many := func(kernel *tracer, n int) {
		for i := range n {
			from(uint32(i), protoTCP, fmt.Sprintf("10.244.1.3:%d", 1000+i), web, "cbr0").ends(trace.AfterPrerouting).send(kernel)
		}
	}
	if shown, r, err := follow(t, 3, func(kernel *tracer) { many(kernel, 5) }); err != nil || len(shown) != 3 || r != (Result{Packets: 3, Refused: 3}) {
		t.Errorf("3 of 5 packets: %d, %+v, %v", len(shown), r, err)
	}
	shown, r, err := follow(t, 1000, func(kernel *tracer) { many(kernel, 500); kernel.lost = true })
	if err != nil || !r.Lost || len(shown) != 500 || shown[0].Verdict != "Incomplete" {
		t.Errorf("more packets than can be received: %d, lost %v, %v", len(shown), r.Lost, err)
	}
	broken := errors.New("out of memory")
	if _, _, err := follow(t, 3, func(kernel *tracer) { kernel.err = broken }); !errors.Is(err, broken) {
		t.Errorf("the kernel fails: %v", err)
	}
	if shown, r, err := follow(t, 3, func(*tracer) {}); err != nil || len(shown) != 0 || r != (Result{}) {
		t.Errorf("no packets: %d, %+v, %v", len(shown), r, err)
	}
	other := from(1, protoTCP, pod, web, "cbr0")
	other.steps[0].Chain = "theirs"
	all := newAssembler()
	all.add(event{other.steps[0].Event, trace.Description{}}, time.Time{})
	if found := all.finished(time.Time{}.Add(time.Hour)); len(found) != 0 {
		t.Errorf("a packet that somebody else traces: %+v", found)
	}
}
