package inspect

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/status/v1alpha1"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/status"
	"github.com/seed-11a05479/kube-proxy/pkg/terminal"
	"github.com/seed-11a05479/kube-proxy/test/cases"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// shown are the cases whose text is golden: each has something that others do not.
var shown = []string{"readiness", "terminating", "hints-zone", "external-policy-local", "source-ranges", "contested", "ports", "affinity",
	"family-without-cluster-ip", "no-endpoints-node", "not-ours", "external-ips-off"}

func load(t *testing.T) map[string]*cases.Case {
	t.Helper()
	all, err := cases.Load("../../test/cases")
	if err != nil {
		t.Fatal(err)
	}
	byName := map[string]*cases.Case{}
	for _, c := range all {
		if c.Family == cluster.IPv4 && c.Before == nil {
			byName[strings.TrimSuffix(c.Name, "/IPv4")] = c
		}
	}
	return byName
}

// of returns a Reader of a case.
func of(c *cases.Case) *Local {
	return &Local{state: &status.State{Snapshot: c.Snapshot, Plan: c.Plan(), Now: time.Date(2026, 11, 22, 8, 0, 0, 0, time.UTC)}}
}

// write prints the list, every Service and every packet of a case.
func write(t *testing.T, c *cases.Case, p Printer) string {
	t.Helper()
	var out bytes.Buffer
	r := of(c)
	list, err := r.Services(t.Context(), status.Filter{}, false)
	must(t, err)
	fmt.Fprintln(&out, "$ kube-proxy service list -A")
	p.Namespaces = true
	out.WriteString(p.Services(list, nil))
	for i := range list.Items {
		s := &list.Items[i]
		fmt.Fprintf(&out, "\n$ kube-proxy service describe %s\n", terminal.Printable(s.Namespace+"/"+s.Name))
		full, err := r.Service(t.Context(), cluster.ServiceName{Namespace: s.Namespace, Name: s.Name})
		must(t, err)
		out.WriteString(p.Service(full, nil))
	}
	for _, packet := range c.Packets {
		connection := status.Question{From: cases.Address(packet.From, cluster.FamilyOf(packet.To.Addr())).String(), To: packet.To.String() + "/" + packet.Protocol.String()}
		fmt.Fprintf(&out, "\n$ kube-proxy explain --from %s --to %s\n", connection.From, connection.To)
		explanation, err := r.Explain(t.Context(), connection)
		must(t, err)
		out.WriteString(p.Explanation(explanation))
	}
	return out.String()
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// golden compares text with a file, or writes the file.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		must(t, os.WriteFile(path, []byte(got), 0o644))
		return
	}
	want, err := os.ReadFile(path)
	must(t, err)
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s differs (-file +now); if the change is intended, run make golden:\n%s", path, diff)
	}
}

// TestGoldenText shows what the commands print for cases, on a pipe and on a terminal of 60 columns.
func TestGoldenText(t *testing.T) {
	all := load(t)
	for _, name := range shown {
		golden(t, name+".txt", write(t, all[name], Printer{}))
	}
	golden(t, "width-60.txt", write(t, all["external-policy-local"], Printer{Width: 60}))
}

// TestWidth proves that everything fits a terminal of 60 columns, for all cases, except tables of long names.
func TestWidth(t *testing.T) {
	for name, c := range load(t) {
		for line := range strings.Lines(write(t, c, Printer{Width: 60})) {
			if length := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); !strings.HasPrefix(line, "$") && length > 60 {
				t.Errorf("%s: %d columns: %s", name, length, line)
			}
		}
	}
}

// TestRates proves connections per second of Service, address and endpoint, also after a counter started again at 0, and the order.
func TestRates(t *testing.T) {
	start := time.Date(2026, 11, 22, 8, 0, 0, 0, time.UTC)
	service := func(name string, n, refused uint64) v1alpha1.Service {
		return v1alpha1.Service{Namespace: "default", Name: name, Connections: &n, Refused: &refused,
			Ports: []v1alpha1.Port{{Name: "http", Protocol: "TCP", Port: 80,
				Addresses: []v1alpha1.Address{{Address: "10.96.0.1", Kind: "ClusterIP", Port: 80, TrafficPolicy: "Cluster", Verdict: "Balance", Endpoints: 1, Connections: &n}},
				Endpoints: []v1alpha1.Endpoint{{Address: "10.0.0.1:8080", Slice: "s", Ready: true, UsedBy: []string{"Cluster"}, Connections: &n}}}}}
	}
	before := CountersOf(start, service("quiet", 5, 0), service("busy", 10, 1), service("reset", 100, 0))
	items := []v1alpha1.Service{service("reset", 4, 0), service("busy", 30, 3), service("quiet", 5, 0)}
	rates := CountersOf(start.Add(2*time.Second), items...).Since(before)
	var out bytes.Buffer
	out.WriteString(Printer{}.Services(&v1alpha1.ServiceList{Items: items}, rates))
	want := `NAME    CLUSTER-IP   PORTS    READY   CONNS/S   REFUSED/S   STATUS
busy    <none>       80/TCP   0/0     10.0      1.0         OK
reset   <none>       80/TCP   0/0     2.0       0.0         OK
quiet   <none>       80/TCP   0/0     0.0       0.0         OK
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("the list (-want +got):\n%s", diff)
	}
	out.Reset()
	out.WriteString(Printer{}.Service(&items[1], rates))
	for _, want := range []string{"30, 10.0/s; refused packets: 3, 1.0/s", "Cluster   30      10.0      1 endpoint", "ready   30      10.0      yes"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the description lacks %q:\n%s", want, out.String())
		}
	}
	if rates := before.Since(nil); rates != nil {
		t.Errorf("rates without an earlier reading: %+v", rates)
	}
}

// TestHostileNames proves that control characters do not reach a terminal.
func TestHostileNames(t *testing.T) {
	var out bytes.Buffer
	list := &v1alpha1.ServiceList{Items: []v1alpha1.Service{{Name: "a\x1b[2Jb", ClusterIPs: []string{"\x07"}}},
		Unowned: []v1alpha1.Slice{{Name: "s\x1b]0;x\x07"}}, ConnectionsError: "\x1b[31m"}
	out.WriteString(Printer{Wide: true, Namespaces: true}.Services(list, nil))
	out.WriteString(Printer{}.Service(&list.Items[0], nil))
	out.WriteString(Printer{}.Explanation(&v1alpha1.Explanation{Verdict: "Reject", Reason: "\x1b[2J"}))
	if strings.ContainsAny(out.String(), "\x1b\x07") {
		t.Errorf("control characters in %q", out.String())
	}
}

// TestRulesText shows what render and drift print.
func TestRulesText(t *testing.T) {
	var out bytes.Buffer
	out.WriteString(Printer{}.Ruleset(&v1alpha1.Ruleset{Mode: "nftables", Families: []v1alpha1.FamilyRules{
		{Family: "IPv4", Rules: "table ip kube-proxy {\n\tchain a\x1b {\n\t}\n}\n"}, {Family: "IPv6", Rules: "table ip6 kube-proxy {\n}\n"}}}))
	out.WriteString(Printer{}.Comparison(&v1alpha1.Comparison{Mode: "nftables"}))
	out.WriteString(Printer{}.Comparison(&v1alpha1.Comparison{Mode: "nftables", Items: []v1alpha1.Difference{
		{Family: "IPv4", Object: "map services", Missing: []string{"10.96.0.1 . tcp . 80 : goto a"}, Extra: []string{"10.96.0.1 . tcp . 80 : goto b"}},
		{Family: "IPv6", Object: "table ip6 kube-proxy", Note: "The kernel does not have it."}}}))
	out.WriteString(Printer{}.Repairs(&v1alpha1.RepairList{}))
	at := time.Date(2026, 11, 22, 8, 0, 0, 0, time.UTC)
	out.WriteString(Printer{Width: 60}.Repairs(&v1alpha1.RepairList{Items: []v1alpha1.Repair{
		{Time: at, Family: "IPv4", What: "its elements", Details: []string{"map services lacked 10.96.0.1 . tcp . 80 : goto a"}},
		{Time: at, Family: "IPv6", What: "the chain KUBE-SERVICES of table nat", Writer: "iptables"}}}))
	golden(t, "rules.txt", out.String())
}
