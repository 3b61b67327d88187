//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/config"
	"github.com/seed-11a05479/kube-proxy/test/kubeproxy"
	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// monitoring is the folder of alerts and dashboard.
const monitoring = "../../build/monitoring"

// TestKernelAlerts tests the alerts with promtool, and that the dashboard's expressions are valid.
func TestKernelAlerts(t *testing.T) {
	t.Parallel()
	netns.Require(t, "promtool")
	for _, args := range [][]string{{"check", "rules", "alerts.yaml"}, {"test", "rules", "alerts_test.yaml"}} {
		cmd := exec.Command("promtool", args...)
		cmd.Dir = monitoring
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %v: %v\n%s", args, err, out)
		}
	}
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	text, err := os.ReadFile(filepath.Join(monitoring, "dashboard.json"))
	if err == nil {
		err = json.Unmarshal(text, &dashboard)
	}
	if err != nil {
		t.Fatal(err)
	}
	rules := "groups:\n- name: dashboard\n  rules:\n"
	for _, panel := range dashboard.Panels {
		for i, target := range panel.Targets {
			expression := strings.NewReplacer("$__rate_interval", "5m", "$instance", ".*").Replace(target.Expr)
			rules += fmt.Sprintf("  - {record: 'panel:%d', expr: %q, labels: {title: %q}}\n", i, expression, panel.Title)
		}
	}
	file := filepath.Join(t.TempDir(), "rules.yaml")
	kubeproxy.MustWrite(file, rules)
	if out, err := exec.Command("promtool", "check", "rules", "--lint=none", file).CombinedOutput(); err != nil || len(dashboard.Panels) == 0 {
		t.Errorf("promtool check rules: %v\n%s", err, out)
	}
}

// TestKernelMonitoring counts connections in each mode, also after the rules were rewritten and the proxy restarted. A real
// Prometheus scrapes the metrics, and promtool finds nothing wrong with our own.
func TestKernelMonitoring(t *testing.T) {
	t.Parallel()
	netns.Require(t, "prometheus", "promtool")
	w := newTrial(t)
	const (
		byService  = `serviceproxy_service_connections_total{port="tcp",protocol="TCP",service_name="web",service_namespace="default"}`
		byEndpoint = `serviceproxy_endpoint_connections_total{endpoint_address="10.244.2.2:8080",port="tcp",protocol="TCP",service_name="web",service_namespace="default"}`
	)
	for _, test := range []struct {
		mode config.ProxyMode
		// restarted and another are the numbers after a restart, and after another connection.
		restarted, another string
	}{
		{config.ProxyModeNFTables, "2", "3"}, // the element was rewritten after 3 connections
		{config.ProxyModeIPTables, "5", "6"}, // the rule was not
	} {
		t.Run(string(test.mode), func(t *testing.T) {
			mode := test.mode
			w := &trial{T: t, lab: w.lab, program: w.program, dir: w.dir}
			file := filepath.Join(w.dir, "web.yaml")
			kubeproxy.MustWrite(file, nodePortService)
			t.Run("started", func(t *testing.T) {
				w := &trial{T: t, lab: w.lab, program: w.program, dir: w.dir}
				w.proxy(mode, "--connection-metrics=endpoint")
				w.connections(3)
				w.exposes(byService, "3")
				w.exposes(byEndpoint, "3")
				kubeproxy.MustWrite(file, strings.Replace(nodePortService, "[{addresses: [10.244.2.2], nodeName: node2}]",
					"[{addresses: [10.244.2.2], nodeName: node2}, {addresses: [10.244.2.3], nodeName: node2, conditions: {ready: true}}]", 1))
				w.exposes(strings.Replace(byEndpoint, "2.2:", "2.3:", 1), "0")
				kubeproxy.MustWrite(file, nodePortService)
				w.exposes(strings.Replace(byEndpoint, "2.2:", "2.3:", 1), "")
				w.connections(2)
				w.exposes(byService, "5")
				w.exposes(byEndpoint, "5")
				w.prometheus(byService, "5")
				w.resetsNothing()
			})
			t.Run("restarted", func(t *testing.T) {
				w := &trial{T: t, lab: w.lab, program: w.program, dir: w.dir}
				w.proxy(mode, "--connection-metrics=service")
				w.exposes(byService, test.restarted)
				w.connections(1)
				w.exposes(byService, test.another)
				w.exposes(byEndpoint, "")
			})
		})
	}
}

// connections opens connections from the node to the Service.
func (w *trial) connections(n int) {
	w.Helper()
	probe := netns.Probe{From: w.lab.Node1.Host, To: netip.MustParseAddrPort("10.96.0.10:80"), Protocol: netns.TCP}
	if tally := probe.Spread(n); tally.Failed() > 0 {
		w.Fatalf("%s: %s", probe, tally)
	}
}

// resetsNothing asks for a reset of the metrics, as other components allow it.
func (w *trial) resetsNothing() {
	w.Helper()
	const set = `serviceproxy_waiting{reason="node"}` // only when it changes
	before := w.metric(set)
	request, err := http.NewRequestWithContext(w.Context(), http.MethodDelete, "http://127.0.0.1:10249/metrics", http.NoBody)
	if err != nil {
		w.Fatal(err)
	}
	client := http.Client{Transport: &http.Transport{DialContext: w.lab.Node1.Dial, DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		w.Fatal(err)
	}
	_ = response.Body.Close()
	if after := w.metric(set); before == "" || after != before {
		w.Errorf("after a DELETE that was answered with %s, %s is %q, before %q", response.Status, set, after, before)
	}
}

// exposes waits until a sample has a value; "" waits until there is no such sample.
func (w *trial) exposes(sample, want string) {
	w.Helper()
	got := w.metric(sample)
	for began := time.Now(); got != want; got = w.metric(sample) {
		if time.Since(began) > patience {
			w.Fatalf("%s is %q, want %q", sample, got, want)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// prometheus runs a Prometheus in node1 until it has scraped a value, and checks the page with promtool.
func (w *trial) prometheus(query, want string) {
	w.Helper()
	dir := w.TempDir()
	settings := filepath.Join(dir, "prometheus.yaml")
	kubeproxy.MustWrite(settings, "global: {scrape_interval: 200ms}\nscrape_configs:\n- {job_name: kube-proxy, static_configs: [{targets: ['127.0.0.1:10249']}]}\n")
	server := w.lab.Node1.Command("prometheus", "--config.file", settings, "--storage.tsdb.path", filepath.Join(dir, "data"), "--web.listen-address", "127.0.0.1:9090")
	if err := server.Start(); err != nil {
		w.Fatal(err)
	}
	defer func() { _ = server.Kill() }()
	client := http.Client{Transport: &http.Transport{DialContext: w.lab.Node1.Dial, DisableKeepAlives: true}}
	answer, began := "", time.Now()
	for !strings.Contains(answer, `,"`+want+`"]`) {
		if time.Since(began) > patience {
			w.Fatalf("%s: Prometheus answers %s", query, answer)
		}
		time.Sleep(50 * time.Millisecond)
		answer = body(&client, "http://127.0.0.1:9090/api/v1/query?query="+url.QueryEscape(query))
	}
	var problems []string
	check := exec.Command("promtool", "check", "metrics")
	check.Stdin = strings.NewReader(body(&client, "http://127.0.0.1:10249/metrics"))
	out, _ := check.CombinedOutput() // it fails for names of kube-proxy too, which cannot be changed
	for line := range strings.Lines(string(out)) {
		if !strings.HasPrefix(line, "kubeproxy_") {
			problems = append(problems, line)
		}
	}
	if len(problems) > 0 {
		w.Errorf("promtool check metrics:\n%s", strings.Join(problems, ""))
	}
}

// body returns the body of a page; "" if it cannot be read.
func body(client *http.Client, address string) string {
	response, err := client.Get(address)
	if err != nil {
		return ""
	}
	defer response.Body.Close()
	page, err := io.ReadAll(response.Body)
	if err != nil {
		return ""
	}
	return string(page)
}
