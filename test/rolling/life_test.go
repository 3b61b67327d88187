//go:build linux

package rolling

import (
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/status/v1alpha1"
	"github.com/seed-11a05479/kube-proxy/test/kubeproxy"
	"github.com/seed-11a05479/kube-proxy/test/netns"
)

var update = flag.Bool("update", false, "rewrite the table of docs/connections.md from what is observed")

// moment is a column of the table: the phase of an endpoint's life, and whether the Service has another endpoint, which is ready. A pod that is
// gone is silent, as when its node is; others answer.
type moment struct {
	name  string
	phase phase
	other bool
}

func moments() []moment {
	return []moment{
		{"ready", ready, true},
		{"terminating, serving", terminatingServing, true},
		{"the same, no other is ready", terminatingServing, false},
		{"terminating, not serving", terminating, true},
		{"gone", absent, true},
		{"gone, and no other", absent, false},
	}
}

// TestKernelLifeGolden observes in each mode and family what becomes of new and established connections in each phase of an endpoint's life,
// and compares it with the table in docs/connections.md, or with -update writes the table.
func TestKernelLifeGolden(t *testing.T) {
	const docs = "../../docs/connections.md"
	page, err := os.ReadFile(docs)
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "<!-- observed by test/rolling -->\n\n", "\n<!-- end -->"
	before, rest, _ := strings.Cut(string(page), begin)
	table, after, found := strings.Cut(rest, end)
	if !found {
		t.Fatalf("%s lacks %q and %q", docs, begin, end)
	}
	want := parseTable(table)
	w := newWorld(t, 1, netns.Protocols()...)
	for _, mode := range []string{"nftables", "iptables"} {
		t.Run(mode, func(t *testing.T) { w.lives(t, mode, want, *update && mode == "nftables") })
	}
	if *update {
		if err := os.WriteFile(docs, []byte(before+begin+formatTable(want)+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// cells are what becomes of connections, by row and moment.
type cells map[string]map[string]string

// rowsOf returns the names of the two rows of a protocol.
func rowsOf(protocol netns.Protocol) (anew, established string) {
	return string(protocol) + ", new", string(protocol) + ", established"
}

func formatTable(c cells) string {
	var b strings.Builder
	b.WriteString("| the endpoint is |")
	for _, m := range moments() {
		fmt.Fprintf(&b, " %s |", m.name)
	}
	b.WriteString("\n|" + strings.Repeat("---|", len(moments())+1) + "\n")
	for _, protocol := range netns.Protocols() {
		anew, established := rowsOf(protocol)
		for _, row := range []string{anew, established} {
			if c[row] == nil {
				continue
			}
			fmt.Fprintf(&b, "| %s |", row)
			for _, m := range moments() {
				fmt.Fprintf(&b, " %s |", c[row][m.name])
			}
			b.WriteString("\n")
		}
	}
	return b.String()
}

// parseTable parses the result of formatTable.
func parseTable(text string) cells {
	c := cells{}
	for line := range strings.Lines(text) {
		parts := strings.Split(strings.Trim(line, "|\n"), "|")
		row := map[string]string{}
		for i, m := range moments() {
			if i+1 < len(parts) {
				row[m.name] = strings.TrimSpace(parts[i+1])
			}
		}
		c[strings.TrimSpace(parts[0])] = row
	}
	return c
}

// lives observes one mode. If learn says so, what it observes in IPv4 is what is wanted.
func (w *world) lives(t *testing.T, mode string, want cells, learn bool) {
	outer := w.T
	w.T = t
	defer func() { w.T = outer }()
	other, subject := w.pods[0], w.pods[1]
	w.must(w.starts(subject))
	defer w.run(kubeproxy.Path(t), mode, w.toCluster())()
	for _, m := range moments() {
		w.becomes(other, absent)
		w.shows(subject, other)
		flows := w.flows(subject)
		if m.other {
			w.must(w.starts(other))
		}
		if w.becomes(subject, m.phase); m.phase == absent {
			w.nft(subject, "table inet gone { chain silent { type filter hook prerouting priority -300; policy drop; }\n }")
		}
		w.shows(subject, other)
		for f, seen := range w.observeAll(flows, subject, other, want, m) {
			for row, observed := range seen {
				if learn && flows[f].family == netns.IPv4 {
					if want[row] == nil {
						want[row] = map[string]string{}
					}
					want[row][m.name] = observed
				}
				if observed != want[row][m.name] {
					t.Errorf("%s, %s, the endpoint is %s: %s; want: %s", flows[f].family, row, m.name, observed, want[row][m.name])
				}
			}
		}
		if m.phase == absent {
			w.nft(subject, "delete table inet gone")
		}
		w.becomes(subject, ready)
		if m.other {
			w.closes(other)
		}
	}
	w.closes(subject)
	w.becomes(subject, absent)
	w.becomes(other, absent)
}

// nft changes rules in a pod.
func (w *world) nft(p *pod, rules string) {
	w.Helper()
	if out, err := p.Command("nft", rules).CombinedOutput(); err != nil {
		w.Fatalf("nft %s: %v: %s", rules, err, out)
	}
}

// observeAll observes all flows at the same time, and closes them.
func (w *world) observeAll(flows []flow, subject, other *pod, want cells, m moment) []map[string]string {
	seen := make([]map[string]string, len(flows))
	var observing sync.WaitGroup
	for i, f := range flows {
		observing.Go(func() {
			seen[i] = w.observe(f, subject, other, want, m)
			f.flow.Close()
		})
	}
	observing.Wait()
	return seen
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// closes ends a pod's programs, which reset their connections.
func (w *world) closes(p *pod) {
	w.Helper()
	for _, server := range p.servers {
		w.must(server.Close())
	}
}

// flow is an established connection to the Service's cluster IP.
type flow struct {
	probe  netns.Probe
	family netns.Family
	flow   *netns.Flow
}

// toCluster are the probes from a pod to the cluster IPs of the Service with policy Cluster.
func (w *world) toCluster() []netns.Probe {
	return slices.DeleteFunc(w.probes(), func(p netns.Probe) bool { return p.From == w.lab.Client || serviceOf(p) != "cluster" })
}

// flows opens one to the only endpoint in each family and protocol.
func (w *world) flows(subject *pod) (all []flow) {
	w.Helper()
	for _, probe := range w.toCluster() {
		opened, answer := probe.Open()
		if answer.Endpoint != subject.Name {
			w.Fatalf("%s: %s, want an answer of %s", probe, answer, subject.Name)
		}
		all = append(all, flow{probe, netns.FamilyOf(probe.To.Addr()), opened})
	}
	return all
}

// What may change until it is observed no more.
const goesOn, noAnswer = "goes on", "gets no answer"

// news is how many new connections are made, of which two endpoints both get some.
const news = 30

// observe returns what becomes of new connections, and of an established one, which it uses until that is as wanted, or for some seconds.
func (w *world) observe(f flow, subject, other *pod, want cells, m moment) map[string]string {
	anew, established := rowsOf(f.probe.Protocol)
	seen := map[string]string{anew: w.fate(f.probe.Spread(news), subject, other)}
	if f.probe.Protocol == netns.SCTP { // the lab's SCTP associates only
		return seen
	}
	late := make(chan struct{})
	limit, ends := patience, true
	switch wanted := want[established][m.name]; {
	case *update:
		limit, ends = 3*time.Second, false
	case wanted == goesOn || wanted == noAnswer:
		limit, ends = time.Second, false // what should not happen has not happened by then
	}
	defer w.lab.After(limit, func() { close(late) })()
	for {
		switch answer := f.flow.Ask(); {
		case answer.Verdict == netns.Answered && answer.Endpoint == subject.Name:
			seen[established] = goesOn
		case answer.Verdict == netns.Answered && answer.Endpoint == other.Name:
			seen[established] = "moves to another"
		default:
			seen[established] = word(answer.Verdict)
		}
		if ends && seen[established] == want[established][m.name] {
			return seen
		}
		select {
		case <-late:
			return seen
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// word says how a connection fails.
func word(v netns.Verdict) string {
	switch v {
	case netns.Refused:
		return "is refused"
	case netns.Broken:
		return "is reset"
	case netns.Dropped:
		return noAnswer
	default:
		return "is " + v.String()
	}
}

// fate says where new connections go.
func (w *world) fate(tally netns.Tally, subject, other *pod) string {
	to, toOther := tally.Endpoints[subject.Name], tally.Endpoints[other.Name]
	switch {
	case tally.Failed() == tally.Sent:
		return word(tally.Failures[0].Verdict)
	case tally.Failed() > 0:
		return fmt.Sprintf("%d of %d fail", tally.Failed(), tally.Sent)
	case to > 0 && toOther > 0:
		return "may go to it"
	case to > 0:
		return "goes to it"
	default:
		return "goes to another"
	}
}

// shows waits until the proxy says that the endpoints' phases are in force.
func (w *world) shows(pods ...*pod) {
	w.Helper()
	client := http.Client{Transport: &http.Transport{DialContext: w.lab.Node1.Dial, DisableKeepAlives: true}}
	for began := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		response, err := client.Get("http://127.0.0.1:10249" + v1alpha1.Path + "/services/default/cluster")
		w.must(err)
		var service v1alpha1.Service
		err = json.NewDecoder(response.Body).Decode(&service)
		response.Body.Close()
		w.must(err)
		if w.inForce(&service, pods) {
			return
		}
		if time.Since(began) > patience {
			w.Fatalf("the phases are not in force: %+v\n%s", service, w.log.String())
		}
	}
}

// inForce reports whether all ports have the pods in their phases, in both families.
func (w *world) inForce(service *v1alpha1.Service, pods []*pod) bool {
	for _, port := range service.Ports {
		for _, p := range pods {
			has := 0
			c := p.phase.conditions()
			for _, e := range port.Endpoints {
				for _, family := range netns.Families() {
					if !strings.HasPrefix(e.Address, p.Addr(family).String()+":") && !strings.HasPrefix(e.Address, "["+p.Addr(family).String()+"]") {
						continue
					}
					if p.phase == absent || e.Ready != *c.Ready || e.Serving != *c.Serving || e.Terminating != *c.Terminating {
						return false
					}
					has++
				}
			}
			if p.phase != absent && has != len(netns.Families()) {
				return false
			}
		}
	}
	return len(service.Ports) > 0
}
