package fleet

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/status/v1alpha1"
)

// TestWorse compares what a node was like with what it is.
func TestWorse(t *testing.T) {
	serving := func(messages ...string) *Node { return &Node{State: Serving, Health: healthy, Messages: messages} }
	refused := func(services int) *Node {
		n := serving(fmt.Sprintf("RefusedByKernel: %d of its Services", services))
		n.Observed = map[string]int{"RefusedByKernel": services}
		return n
	}
	upstream := &Node{State: Foreign, Health: healthy, Messages: []string{isForeign + " (image kube-proxy:v1.37.2)"}}
	failing := &Node{State: Failing, Health: healthy, Messages: []string{"IPv6: the last sync failed: busy"}}
	const invalid = "InvalidManifest: a.yaml: line 3"
	for _, test := range []struct {
		name        string
		before, now *Node
		want        []string
	}{
		{"nothing changed", serving(), serving(), nil},
		{"from Kubernetes' own proxy", upstream, serving(), nil},
		{"back to it", serving(), upstream, nil},
		{"an older version", serving(), serving(isOlder), nil},
		{"it fails", serving(), failing, []string{"Failing: IPv6: the last sync failed: busy"}},
		{"it failed before", failing, &Node{State: Unreachable, Messages: []string{"timeout"}}, nil},
		{"it does not fail any more", failing, serving(), nil},
		{"no pod any more", upstream, &Node{State: NoPod, Messages: []string{"none"}}, []string{"NoPod: none"}},
		{"health", upstream, &Node{State: Serving, Health: "503", Messages: []string{"/healthz answers 503: no"}}, []string{"/healthz answers 503: no"}},
		{"health of Kubernetes' own", upstream, &Node{State: Foreign, Health: "503", Messages: []string{isForeign, "/healthz answers 503: no"}}, []string{"/healthz answers 503: no"}},
		{"no answer about health", serving(), &Node{State: Serving}, []string{"/healthz does not answer any more"}},
		{"refused", serving(), refused(2), []string{"RefusedByKernel: 2 of its Services"}},
		{"more refused", refused(2), refused(3), []string{"RefusedByKernel: 3 of its Services"}},
		{"fewer refused", refused(2), refused(1), nil},
		{"a problem", serving(), serving(invalid), []string{invalid}},
		{"the same problem", serving(invalid), serving(invalid), nil},
		{"another one of the kind", serving(invalid), serving(invalid, "InvalidManifest: b.yaml: line 1"), []string{invalid, "InvalidManifest: b.yaml: line 1"}},
		{"the same lag", serving("lags: a change of 10:00 is not programmed"), serving("lags: a change of 11:00 is not programmed"), nil},
		{"a lag", upstream, serving("lags: a change of 11:00 is not programmed"), []string{"lags: a change of 11:00 is not programmed"}},
		{"waits", serving(), serving("waits for the API server to list services"), []string{"waits for the API server to list services"}},
		{"new, and fine", nil, serving(), nil},
		{"new, with a fault", nil, serving(invalid), []string{invalid}},
		{"new, without a proxy", nil, &Node{State: NotRunning, Messages: []string{"the pod is Pending"}}, []string{"NotRunning: the pod is Pending"}},
	} {
		if diff := cmp.Diff(test.want, test.now.worseThan(test.before)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
	}
}

// TestReadNull reads a report with a node that is null.
func TestReadNull(t *testing.T) {
	if _, err := Read([]byte(`{"kind": "Fleet", "apiVersion": "` + v1alpha1.Meta(v1alpha1.KindFleet).APIVersion + `", "time": "2026-01-01T00:00:00Z", "nodes": [null]}`)); err == nil || !strings.Contains(err.Error(), "null") {
		t.Error(err)
	}
}

// TestNote cuts a long message between characters.
func TestNote(t *testing.T) {
	n := &Node{}
	n.note(strings.Repeat("a", longestMessage-1) + "é")
	if n.Messages[0] != strings.Repeat("a", longestMessage-1) {
		t.Errorf("%q", n.Messages[0][longestMessage-3:])
	}
}

// TestCompareWith compares a report with an earlier one, which comes from a file.
func TestCompareWith(t *testing.T) {
	at := time.Date(2026, 11, 28, 10, 0, 0, 0, time.UTC)
	report := func(dispute []Disagreement, names ...string) *Report {
		r := &Report{TypeMeta: v1alpha1.Meta(v1alpha1.KindFleet), Time: at, Disagreements: dispute}
		for _, name := range names {
			r.Nodes = append(r.Nodes, &Node{Name: name, State: Serving, Health: healthy})
		}
		return r
	}
	about := func(service string, nodes ...string) Disagreement {
		return Disagreement{Service: service, Nodes: nodes, Than: "n9"}
	}
	text, err := json.Marshal(report([]Disagreement{about("a/old", "n1", "n2")}, "n1", "n2", "gone"))
	if err != nil {
		t.Fatal(err)
	}
	before, err := Read(text)
	if err != nil {
		t.Fatal(err)
	}
	now := report([]Disagreement{about("a/old", "n1", "n3"), about("a/new", "n2")}, "n1", "n2", "n3")
	now.CompareWith(before)
	if diff := cmp.Diff([]Fault{{"n2", []string{"it disagrees with other nodes about 1 Service: a/new"}}, {"n3", []string{"it disagrees with other nodes about 1 Service: a/old"}}}, now.Worse); diff != "" || now.Fine() {
		t.Errorf("-want +got:\n%s", diff)
	}
	out := now.Text()
	for _, want := range []string{"\nn3 is worse than before:\n  it disagrees with other nodes about 1 Service: a/old\n", "; worse than at 2026-11-28T10:00:00Z: 2."} {
		if !strings.Contains(out, want) {
			t.Errorf("without %q:\n%s", want, out)
		}
	}
	same := report([]Disagreement{about("a/old", "n1", "n2")}, "n1", "n2")
	if same.CompareWith(before); !same.Fine() {
		t.Errorf("with the faults of before, and without a Node that was deleted: %+v", same.Worse)
	}
	same.someUnknown = true
	if same.CompareWith(before); len(same.Worse) != 1 || same.Worse[0].Node != "gone" {
		t.Errorf("a node without a pod, where Nodes cannot be listed: %+v", same.Worse)
	}
	for text, want := range map[string]string{
		"": "it is no report", "{": "yaml", "{}": "it is no report", `{"kind":"Fleet","apiVersion":"v1","time":"2026-11-28T10:00:00Z"}`: `apiVersion "v1"`,
		`{"kind":"Fleet","nodes":3}`: "cannot unmarshal",
	} {
		if _, err := Read([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}
