package status

import (
	"strings"
	"testing"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/status/v1alpha1"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
	"github.com/seed-11a05479/kube-proxy/test/clusters"
)

// states returns a function for states that show some objects in IPv4, and have others in force in IPv6: none without a success there.
func states(t *testing.T) func(shown, ipv6 string) *State {
	return func(shown, ipv6 string) *State {
		t.Helper()
		now := snapshot(t, shown)
		s := &State{Snapshot: now, Plan: plan.Compute(now, &plan.Options{}, nil), Rules: Rules{Families: []cluster.Family{cluster.IPv4, cluster.IPv6}}}
		s.InForce = map[cluster.Family]*plan.Plan{cluster.IPv4: s.Plan}
		if ipv6 != "" {
			s.InForce[cluster.IPv6] = plan.Compute(snapshot(t, ipv6), &plan.Options{}, nil)
		}
		return s
	}
}

// TestDigestsOfFailingFamilies compares nodes that show the same Services, and differ in what is in force in a family that fails.
func TestDigestsOfFailingFamilies(t *testing.T) {
	service := func(name, clusterIP string) string {
		return clusters.Service("default/"+name, "clusterIP: "+clusterIP+", ports: [{port: 80}]")
	}
	a, b := service("a", "10.96.0.10"), service("b", "10.96.0.11")
	state := states(t)
	all := a + b
	seen := map[string]string{}
	for name, s := range map[string]*State{
		"all in force": state(all, all), "none in IPv6": state(all, ""), "a is new": state(all, b), "b is new": state(all, a),
		"a was another": state(all, service("a", "10.96.0.12")+b), "a was a third one": state(all, service("a", "10.96.0.13")+b),
		"c is deleted": state(all, all+service("c", "10.96.0.14")),
	} {
		digests := s.Digests(true)
		if other, ok := seen[digests.All]; ok {
			t.Errorf("%s: the same digest as %s", name, other)
		}
		seen[digests.All] = name
		if again := s.Digests(false); again.All != digests.All {
			t.Errorf("%s: %s, then %s", name, digests.All, again.All)
		}
		if _, listed := digests.Services["default/c"]; listed != (name == "c is deleted") {
			t.Errorf("%s: c is listed: %t", name, listed)
		}
	}
	healthy, none := state(all, all).Digests(true), &State{Snapshot: snapshot(t, all)}
	if other := none.Digests(true); other.All != healthy.All {
		t.Error("without a proxy, the digest differs from that of one that has all in force")
	}
	for _, earlier := range []string{a, b} {
		if one, other := state(all, earlier).Digests(false), state(all, earlier).Digests(false); one.All != other.All {
			t.Error("equal nodes have different digests")
		}
	}
}

// TestExplainWithoutSuccess asks about a family in which no sync has succeeded: the answer says why, once.
func TestExplainWithoutSuccess(t *testing.T) {
	s := states(t)(clusters.Service("default/a", "clusterIP: 10.96.0.10, ports: [{port: 80}]"), "")
	const plain = "no rules of this proxy are in force in IPv6: "
	for want, sync := range map[string]*v1alpha1.Sync{
		plain + "no sync has succeeded there yet":                                                            {Families: []v1alpha1.FamilySync{{Family: "IPv4"}}},
		plain + "IPv6: the last sync failed: busy; what was in force there before stays so, if anything was": {Families: []v1alpha1.FamilySync{{Family: "IPv4"}, {Family: "IPv6", Error: "busy"}}},
	} {
		s.Info.Sync = sync
		if _, err := s.Explain(Question{From: "fd00::1", To: "[fd00:10:96::10]:80"}); err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
