//go:build linux

package cli

import (
	"bytes"
	"cmp"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/utils/clock"

	"github.com/seed-11a05479/kube-proxy/cmd/kube-proxy/app"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/view"
	"github.com/seed-11a05479/kube-proxy/pkg/status"
	"github.com/seed-11a05479/kube-proxy/test/cases"
	"github.com/seed-11a05479/kube-proxy/test/clusters"
)

// TestCommandsTellTheState runs the commands before the first sync, while one family has never succeeded or fails now, and when all
// is well: a command that cannot know says so, and ends with another exit code than 0.
func TestCommandsTellTheState(t *testing.T) {
	snapshot, err := cases.Snapshot(clusters.Service("default/web", "clusterIPs: [10.96.0.10, 'fd00:10:96::10'], ports: [{name: http, port: 80}]")+
		clusters.Slice("default/web", "web-1", "{name: http, port: 8080}", "{addresses: [10.244.1.2]}"), cluster.IPv4)
	if err != nil {
		t.Fatal(err)
	}
	waiting := []string{"the API server to list services (forbidden)"}
	o := view.New(view.Config{Mode: "nftables", Node: "node1", Families: []cluster.Family{cluster.IPv4, cluster.IPv6}, Clock: clock.RealClock{},
		Waiting: func() []string { return waiting }})
	server := httptest.NewServer(view.NewHandler(o))
	defer server.Close()
	var history proxy.History
	sync := func(four, six error) func() {
		return func() {
			waiting = nil
			o.Synced(history.Add(&proxy.Sync{After: snapshot, Plan: plan.Compute(snapshot, &plan.Options{}, nil),
				Results: []backend.Result{{Family: cluster.IPv4, Err: four}, {Family: cluster.IPv6, Err: six}}}))
		}
	}
	if mode := runningMode(t.Context(), server.URL); mode != "nftables" {
		t.Errorf("check takes the mode %q", mode)
	}
	more := func(four, six error) func() {
		return func() {
			web, _ := snapshot.Services.Get(cluster.ServiceName{Namespace: "default", Name: "web"})
			also, changed := *web, *snapshot
			also.Name.Name, also.ClusterIPs = "also", []netip.Addr{netip.MustParseAddr("10.96.0.11"), netip.MustParseAddr("fd00:10:96::11")}
			changed.Services = changed.Services.Set(also.Name, &also)
			snapshot = &changed
			sync(four, six)()
		}
	}
	busy := errors.New("the table is another program's")
	const failed = "IPv4: the last sync failed: the table is another program's; what was in force there before stays so, if anything was"
	for _, state := range []told{
		{"before the first sync", func() {}, "", "no sync has succeeded yet; the rules of an earlier proxy stay in force, if there are any; waiting for: the API server to list services (forbidden)",
			"no sync has succeeded yet", 1},
		{"the first sync failed", sync(busy, busy), "", "; IPv4: the last sync failed: the table is another program's; IPv6: the last sync failed: the table is another program's", "no sync has succeeded yet", 1},
		{"IPv4 has never succeeded", sync(busy, nil), "web", failed, "no rules of this proxy are in force in IPv4", 1},
		{"all is well", sync(nil, nil), "web", "", "", 0},
		{"IPv4 fails now", sync(busy, nil), "web", failed, failed, 1},
		{"a Service is new while IPv4 fails", more(busy, nil), "also", failed, failed, 1},
		{"a Service is gone while IPv4 fails", func() {
			fewer := *snapshot
			fewer.Services = fewer.Services.Delete(cluster.ServiceName{Namespace: "default", Name: "also"})
			snapshot = &fewer
			sync(busy, nil)()
		}, "web", failed, failed, 1},
	} {
		state.change()
		state.check(t, server.URL)
	}
	sync(nil, nil)()
	waiting = []string{"the Node object of this node"}
	o.Queued(time.Now().Add(-time.Minute))
	var out, errs bytes.Buffer
	if code := Run([]string{"service", "describe", "later", "--server", server.URL}, &out, &errs); code != app.ExitFailure || !strings.Contains(errs.String(), "not served: "+status.WhyNotServed+"; changes that arrived in the last 1m") {
		t.Errorf("exit code %d\n%s%s", code, &out, &errs)
	}
	errs.Reset()
	if code := Run([]string{"service", "list", "--server", server.URL}, &out, &errs); code != 0 || errs.String() != "Warning: the proxy waits for the Node object of this node\n" {
		t.Errorf("exit code %d\n%s%s", code, &out, &errs)
	}
	for _, format := range []string{"json", "yaml", "table"} {
		if code := Run([]string{"service", "list", "--watch", "--interval", "1ms", "-o", format, "--server", server.URL}, &smallDisk{left: 1}, &errs); code != app.ExitFailure {
			t.Errorf("a watch on a full disk ends with exit code %d", code)
		}
	}
}

// smallDisk is a writer that is full after some writes.
type smallDisk struct{ left int }

func (d *smallDisk) Write(b []byte) (int, error) {
	if d.left == 0 && len(b) > 0 {
		return 0, syscall.ENOSPC
	}
	d.left -= min(d.left, len(b))
	return len(b), nil
}

// told is a state of the proxy, and what commands say of it.
type told struct {
	name   string
	change func()
	// list is in the output of "service list" and errs in the errors, empty if there is none; explain is that of IPv4 packets.
	list, errs, explain string
	explained           int
}

// check runs the commands.
func (state *told) check(t *testing.T, server string) {
	t.Helper()
	run := func(wantOut, wantErr string, wantCode int, args ...string) {
		t.Helper()
		var out, errs bytes.Buffer
		code := Run(append(args, "--server", server), &out, &errs)
		if code != wantCode || !strings.Contains(out.String(), wantOut) || !strings.Contains(errs.String(), wantErr) || (errs.Len() == 0) != (wantErr == "") {
			t.Errorf("%s: %s: exit code %d, want %d\n%s%s", state.name, args, code, wantCode, &out, &errs)
		}
	}
	code := 0
	if state.errs != "" {
		code = app.ExitFailure
	}
	run(state.list, state.errs, code, "service", "list", "-A")
	run(state.list, state.errs, code, "service", "describe", "default/"+cmp.Or(state.list, "web"))
	run("", state.errs, code, "drift")
	if name := "default/also"; state.list == "also" {
		run("fd00:10:96::11", state.errs, code, "service", "describe", name)
		run("the last sync of IPv4 failed: these are the rules of an earlier one", state.errs, code, "explain", name)
		run("NoEndpoints", "", exitRefused, "explain", "--from", "external", "--to", "[fd00:10:96::11]:80")
	} else if state.list != "" && code != 0 {
		run("", "error: Service default/also is not served: "+status.WhyNotServed+"; IPv4: the last sync failed", code, "service", "describe", name)
	}
	run("", state.explain, state.explained, "explain", "--from", "external", "--to", "10.96.0.10:80")
	if state.errs == "" {
		run("default/web\n", "", 0, "svc", "get", "-o", "name")
		run("web", "", 0, "service", "list", "--no-headers")
		run("", "No Services found in namespace shop; 1 in others: -A.", 0, "service", "list", "-n", "shop")
	}
	if state.list == "web" {
		completes(t, server, "default/web", "service", "describe")
		completes(t, server, "default/web", "explain")
		completes(t, server, "web", "service", "describe", "-n=default")
		completes(t, server, "node", "explain", "--from")
		completes(t, server, "default", "trace", "-n")
	}
	if state.list != "" { // IPv6 is in force, and has no endpoint
		run("NoEndpoints", "", exitRefused, "explain", "--from", "external", "--to", "[fd00:10:96::10]:80")
	}
}

// completes asks for the completion of a command line as a shell does.
func completes(t *testing.T, server, want string, line ...string) {
	t.Helper()
	var out, errs bytes.Buffer
	args := append([]string{"__complete", line[0]}, line[1:]...)
	if last := len(args) - 1; strings.HasPrefix(args[last], "-") {
		args = append(args[:last], "--server", server, args[last])
	} else {
		args = append(args, "--server", server)
	}
	if code := Run(append(args, ""), &out, &errs); code != 0 || !strings.HasPrefix(out.String(), want+"\n") || !strings.Contains(errs.String(), "NoFileComp") {
		t.Errorf("%q: exit code %d\n%s%s", args, code, &out, &errs)
	}
}

// TestCheckWithoutServer checks everything else of a node where nothing says where the API server is.
func TestCheckWithoutServer(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	var out, errs bytes.Buffer
	code := Run([]string{"check", "--skip", "kernel,tools,firewall,proxies,ports,proxy"}, &out, &errs)
	if code == app.ExitUsage || errs.Len() > 0 || !strings.Contains(out.String(), " no API server is configured: ") || !strings.Contains(out.String(), "settings/") {
		t.Errorf("exit code %d\n%s%s", code, &out, &errs)
	}
}

// TestSilentProxy has each command that asks a proxy give up one that does not answer.
func TestSilentProxy(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	defer server.Close()
	for _, args := range [][]string{{"service", "list"}, {"service", "describe", "web"}, {"explain", "10.96.0.10:80"}, {"render"}, {"drift"}, {"drain"}} {
		var out, errs bytes.Buffer
		code := Run(append(args, "--server", server.URL, "--request-timeout", "50ms"), &out, &errs)
		if code != app.ExitFailure || !strings.Contains(errs.String(), "does not answer within 50ms") {
			t.Errorf("%q: exit code %d\n%s%s", args, code, &out, &errs)
		}
	}
}

// TestUnreachableServer reads a cluster that does not answer: the cause is there at once.
func TestUnreachableServer(t *testing.T) {
	server := httptest.NewServer(nil)
	server.Close()
	directory := files(t, map[string]string{"kubeconfig": "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: c}}]\nclusters: [{name: c, cluster: {server: '" + server.URL + "'}}]\n"})
	var out, errs bytes.Buffer
	code := Run([]string{"service", "list", "--node", "n1", "--kubeconfig", filepath.Join(directory, "kubeconfig")}, &out, &errs)
	if code != app.ExitFailure || !strings.Contains(errs.String(), "the API server at "+server.URL+" is unreachable") {
		t.Errorf("exit code %d\n%s%s", code, &out, &errs)
	}
}
