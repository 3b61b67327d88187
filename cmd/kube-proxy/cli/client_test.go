//go:build linux

package cli

import (
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	testclock "k8s.io/utils/clock/testing"

	"github.com/seed-11a05479/kube-proxy/pkg/inspect"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/view"
	"github.com/seed-11a05479/kube-proxy/pkg/status"
	"github.com/seed-11a05479/kube-proxy/test/observers"
)

// TestClient reads everything from a real handler.
func TestClient(t *testing.T) {
	observer := view.New(view.Config{Version: "v1", Mode: "iptables", Node: "node1", Families: []cluster.Family{cluster.IPv4},
		Clock: testclock.NewFakePassiveClock(time.Unix(0, 0))})
	server := httptest.NewServer(view.NewHandler(observer))
	defer server.Close()
	c, err := inspect.NewClient(server.URL, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	info, err := c.Info(t.Context())
	if err != nil || info.Mode != "iptables" || info.Node != "node1" {
		t.Errorf("got %+v, %v", info, err)
	}
	if list, err := c.Services(t.Context(), status.Filter{}, false); err == nil || !strings.Contains(err.Error(), "no sync has succeeded yet") {
		t.Errorf("before the first sync: %+v, %v", list, err)
	}
	(&observers.Cluster{Observer: observer}).Sync()
	list, err := c.Services(t.Context(), status.Filter{Namespace: "default", Address: netip.MustParseAddr("10.96.0.1")}, true)
	if err != nil || len(list.Items) != 0 || list.ConnectionsError == "" {
		t.Errorf("got %+v, %v", list, err)
	}
	if _, err := c.Service(t.Context(), cluster.ServiceName{Namespace: "default", Name: "a/b"}); err == nil || !strings.Contains(err.Error(), "Service default/a/b is not served") {
		t.Errorf("got %v", err)
	}
	explanation, err := c.Explain(t.Context(), status.Question{From: "10.0.0.1", To: "10.0.0.2:80", Interface: "eth0"})
	if err != nil || explanation.Verdict != "Pass" {
		t.Errorf("got %+v, %v", explanation, err)
	}
	if _, err := c.Explain(t.Context(), status.Question{To: "nonsense"}); err == nil || !strings.Contains(err.Error(), "is not a destination") {
		t.Errorf("got %v", err)
	}
	if _, err := c.Ruleset(t.Context(), "ebpf"); err == nil || !strings.Contains(err.Error(), `mode "ebpf" has no rules`) {
		t.Errorf("got %v", err)
	}
	if _, err := c.Compare(t.Context(), "ebpf"); err == nil || !strings.Contains(err.Error(), `mode "ebpf" has no rules`) {
		t.Errorf("got %v", err)
	}
	if repairs, err := c.Repairs(t.Context()); err != nil || len(repairs.Items) != 0 {
		t.Errorf("got %+v, %v", repairs, err)
	}
}
