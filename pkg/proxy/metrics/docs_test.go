package metrics

import (
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/testutil"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

var update = flag.Bool("update", false, "rewrite docs/metrics.md")

const docs = "../../../docs/metrics.md"

const docsHead = `# Metrics

Generated from pkg/proxy/metrics; do not edit.

Served at /metrics of the metrics server (127.0.0.1:10249 by default), with go_*, process_*, rest_client_* and kubernetes_build_info. The
stability is ALPHA unless a row has another. [build/monitoring](../build/monitoring) has alerts and a Grafana dashboard.

## Connections by Service and endpoint

--connection-metrics=service adds serviceproxy_service_connections_total, a series for each port of a Service on each node;
--connection-metrics=endpoint also adds serviceproxy_endpoint_connections_total, a series for each endpoint of the port. port is its name, which
may be empty; both IP families count together. One scrape at a time reads the kernel's counters, for at most 5 s; others get the last values. When
the number of an address's endpoints changes, the connections since the last scrape are lost. Only a restart of the proxy sets the metrics to 0.

`

// documented returns the table of metrics whose names have a prefix, with some of the columns.
func documented(families []*testutil.MetricFamily, prefix string, columns ...string) string {
	var table strings.Builder
	row := func(cells ...string) {
		fmt.Fprintf(&table, "| %s |\n", strings.Join(cells[:len(columns)], " | "))
	}
	row(columns...)
	row("---", "---", "---")
	for _, family := range families {
		if !strings.HasPrefix(family.GetName(), prefix) {
			continue
		}
		stability, help, _ := strings.Cut(strings.TrimPrefix(family.GetHelp(), "["), "] ")
		words := strings.Fields(describe(family))
		kind := words[1]
		if labels := strings.TrimPrefix(words[2], "-"); labels != "" {
			kind += " (" + strings.ReplaceAll(labels, ",", ", ") + ")"
		}
		if stability != "ALPHA" {
			kind += " " + stability
		}
		row("`"+words[0]+"`", kind, help)
	}
	return table.String()
}

func TestDocsMetrics(t *testing.T) {
	families, err := exercised(t).Gather()
	if err != nil {
		t.Fatal(err)
	}
	registry := metrics.NewKubeRegistry()
	f := newFixture(t)
	inIptables := f.counters()
	inIptables.Names = backend.MetricNames{SyncFailures: "sync_proxy_rules_iptables_restore_failures_total"}
	New(Config{Families: []cluster.Family{cluster.IPv4}, Start: start, Snapshot: f.snapshot, Counters: inIptables}, registry.MustRegister)
	others, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range others {
		if strings.Contains(family.GetName(), "restore_failures") {
			families = append(families, family)
		}
	}
	slices.SortFunc(families, func(a, b *testutil.MetricFamily) int { return strings.Compare(a.GetName(), b.GetName()) })
	want := docsHead + "## Our own\n\n" + documented(families, "serviceproxy_", "name", "type (labels)", "meaning") +
		"\n## kube-proxy's\n\nThey mean what they mean there; /metrics has a line about each.\n\n" + documented(families, "kubeproxy_", "name", "type (labels)")
	if *update {
		if err := os.WriteFile(docs, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(docs)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(got), want); diff != "" {
		t.Errorf("docs/metrics.md differs (-file +now); run make docs:\n%s", diff)
	}
}

// TestMonitoring looks for the metrics of the alerts and the dashboard in docs/metrics.md.
func TestMonitoring(t *testing.T) {
	doc, err := os.ReadFile(docs)
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile(`(?:kubeproxy|serviceproxy)_[a-z0-9_]+`)
	found := map[string]int{}
	err = filepath.WalkDir("../../../build/monitoring", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		for _, name := range names.FindAllString(string(text), -1) {
			found[filepath.Ext(path)]++
			histogram := strings.TrimSuffix(name, "_bucket")
			if !strings.Contains(string(doc), "| `"+name+"` |") && !strings.Contains(string(doc), "| `"+histogram+"` | histogram ") {
				t.Errorf("%s: there is no metric %s in docs/metrics.md", path, name)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if found[".yaml"] < 10 || found[".json"] < 10 {
		t.Errorf("found %v names of metrics in build/monitoring", found)
	}
}
