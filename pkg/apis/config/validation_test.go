package config_test

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-base/featuregate"
	logsapi "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register" // log format json
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/config"
)

// rule describes what validation accepts for one field, as YAML values. A field without bad values accepts every value
// of its type.
type rule struct {
	with      string   // other fields of v1alpha2 that must be set for the rule to apply
	good, bad []string // values in v1alpha2
	// The values in v1alpha1, where they are written differently; nil means the same ones.
	oldGood, oldBad []string
	// at is the field of the errors, if it is another one.
	at string
	// onlyLatest is the reason if v1alpha1 has no such rule.
	onlyLatest string
}

const (
	noSuch     = "v1alpha1 has no such field"
	zeroIsNone = "in v1alpha1 a zero is left out"
)

// rules has a row for every field; the test fails if one is missing.
func rules() map[string][]rule {
	all := map[string][]rule{}
	for _, part := range []map[string][]rule{commonRules(), nodeRules(), linuxRules(), backendRules(), winkernelRules()} {
		maps.Copy(all, part)
	}
	return all
}

// The rules that several fields share.
func text() []rule    { return []rule{{good: []string{`""`, `"anything at all"`}}} }
func boolean() []rule { return []rule{{good: []string{"true", "false"}}} }
func count() []rule   { return []rule{{good: []string{"0", "2147483647"}, bad: []string{"-1"}}} }
func duration() []rule {
	return []rule{{good: []string{"0s", "1h"}, bad: []string{"-1s"}}}
}
func positivePeriod() []rule {
	return []rule{{good: []string{"1s", "1h"}, bad: []string{"-1s"}}, {bad: []string{"0s"}, onlyLatest: zeroIsNone}}
}
func bit(with string) []rule {
	return []rule{{with: with, good: []string{"0", "31"}, bad: []string{"-1", "32"}}}
}
func address() []rule {
	return []rule{
		{good: []string{"0.0.0.0:10256", `"[::]:1"`, "127.0.0.1", "1.2.3.4:65535"},
			bad: []string{"nowhere", "host:80", "1.2.3.4:0", "1.2.3.4:65536", `"1.2.3.4:"`, `":80"`, "1.2.3.4:http"}},
		{good: []string{`""`}}, // off in v1alpha2, the default in v1alpha1
	}
}
func alphaLogging(good, bad string) []rule {
	return []rule{{good: []string{good}, bad: []string{bad}}, {with: "featureGates: {LoggingAlphaOptions: true}", good: []string{bad}}}
}
func ipvsTimeout() []rule {
	return []rule{{with: "mode: ipvs", good: []string{"0s", "1h"}, bad: []string{"-1s"}}, {with: "mode: nftables", good: []string{"-1s"}}}
}

// commonRules are the rules of fields that all components have.
func commonRules() map[string][]rule {
	return map[string][]rule{
		"featureGates":                        {{good: []string{"{}", "{KubeProxyNFTablesLocalhostNodePorts: true}"}}}, // names: pkg/features
		"clientConnection.kubeconfig":         text(),
		"clientConnection.acceptContentTypes": text(),
		"clientConnection.contentType":        text(),
		"clientConnection.qps":                {{good: []string{"-1", "0", "0.5", "1e6"}}},
		"clientConnection.burst":              count(),
		"logging.format":                      {{good: []string{"text", "json"}, bad: []string{"xml"}}},
		"logging.flushFrequency":              {{good: []string{"1s"}, bad: []string{"-1s"}}},
		"logging.verbosity":                   {{good: []string{"0", "2147483647"}, bad: []string{"2147483648"}}},
		"logging.vmodule": {
			{good: []string{"[{filePattern: a*, verbosity: 3}]"}, bad: []string{"[{filePattern: '', verbosity: 1}]", "[{filePattern: 'a=b', verbosity: 1}]", "[{filePattern: a, verbosity: 4000000000}]"}},
			{with: "logging: {format: json}", bad: []string{"[{filePattern: a, verbosity: 1}]"}},
		},
		"logging.options.text.splitStream":    alphaLogging("false", "true"),
		"logging.options.text.infoBufferSize": alphaLogging("0", "1Ki"),
		"logging.options.json.splitStream":    alphaLogging("false", "true"),
		"logging.options.json.infoBufferSize": alphaLogging("0", "1Ki"),
	}
}

// nodeRules are the rules of fields about this instance and its node.
func nodeRules() map[string][]rule {
	return map[string][]rule{
		"hostnameOverride": text(),
		"nodeIPOverride": {
			{good: []string{"[]", "[10.0.0.1]", `["fd00::1"]`, "[010.0.0.1]"}, bad: []string{"[node]"},
				oldGood: []string{`""`, "0.0.0.0", `"::"`, "10.0.0.1", `"fd00::1"`, "010.0.0.1"}, oldBad: []string{"node", "10.0.0.0/8"}},
			{good: []string{`[10.0.0.1, "fd00::1"]`}, bad: []string{"[10.0.0.1, 10.0.0.2]", `["fd00::1", "fd00::2"]`, "[0.0.0.0]", `["::"]`}, onlyLatest: "bindAddress is one address"},
		},
		"ipFamilyPolicy":              {{good: []string{`""`, "SingleStack", "PreferDualStack", "RequireDualStack"}, bad: []string{"DualStack", "singleStack"}, onlyLatest: noSuch}},
		"healthzBindAddress":          address(),
		"metricsBindAddress":          address(),
		"bindAddressHardFail":         boolean(),
		"enableProfiling":             boolean(),
		"showHiddenMetricsForVersion": {{good: []string{`""`, `"1.36"`}, bad: []string{`"1.37"`, `"1.35"`, `"1.36.0"`, "old"}}},
		"configHardFail":              {{good: []string{"true", "false"}, onlyLatest: noSuch}},
		"mode":                        {{good: []string{`""`, "iptables", "ipvs", "nftables", "kernelspace"}, bad: []string{"userspace", "NFTables"}}},
		"syncPeriod":                  append(positivePeriod(), rule{with: "minSyncPeriod: 5s", bad: []string{"4s"}, at: "minSyncPeriod", onlyLatest: "its sections have both periods"}),
		"minSyncPeriod": {
			{good: []string{"0s", "30s"}, bad: []string{"-1s", "31s"}},
			{with: "mode: ipvs", good: []string{"0s"}, bad: []string{"-1s", "31s"}},
			{with: "mode: nftables", good: []string{"0s"}, bad: []string{"-1s", "31s"}},
		},
		"configSyncPeriod": positivePeriod(),
		"detectLocalMode": {
			{good: []string{`""`, "ClusterCIDR", "NodeCIDR"}, bad: []string{"clusterCIDR", "None"}},
			{with: "detectLocal: {bridgeInterface: br0, interfaceNamePrefix: veth}", good: []string{"BridgeInterface", "InterfaceNamePrefix"}},
		},
		"detectLocal.clusterCIDRs": {
			{good: []string{"[]", "[10.0.0.0/8]", `["fd00::/8"]`, `[10.0.0.0/8, "fd00::/8"]`, "[010.0.0.0/8]"},
				bad:     []string{"[10.0.0.1]", "[10.0.0.0/8, 11.0.0.0/8]", `["fd00::/8", "fd01::/16"]`, `[10.0.0.0/8, "fd00::/8", 11.0.0.0/8]`, "[pods]"},
				oldGood: []string{`""`, "10.0.0.0/8", `"fd00::/8"`, `"10.0.0.0/8,fd00::/8"`, "010.0.0.0/8"},
				oldBad:  []string{"10.0.0.1", `"10.0.0.0/8,11.0.0.0/8"`, `"fd00::/8,fd01::/16"`, `"10.0.0.0/8,fd00::/8,11.0.0.0/8"`, "pods", `","`}},
			{with: "detectLocalMode: NodeCIDR", good: []string{"[pods]"}, oldGood: []string{"pods"}},
		},
		"detectLocal.bridgeInterface":     {{good: []string{`""`, "br0"}}, {with: "detectLocalMode: BridgeInterface", good: []string{"br0", "of-15-bytes-len"}, bad: []string{`""`, `"*"`, "of-16-bytes-long", `"br 0"`, "br/0"}}},
		"detectLocal.interfaceNamePrefix": {{good: []string{`""`, "veth"}}, {with: "detectLocalMode: InterfaceNamePrefix", good: []string{"veth"}, bad: []string{`""`, "of-16-bytes-long"}}},
		"nodePortAddresses": {{good: []string{"[]", "[primary]", "[localhost, 10.0.0.0/8]", "[all, primary]", `["::/0"]`, "[010.0.0.0/8]"},
			bad: []string{"[Primary]", "[10.0.0.1]", `[""]`, "[eth0]", "[primary, any]"}}},
		"connectionLimits": {{good: []string{"[]", `[{namespace: "*", perSecond: 100000, open: 5000}, {namespace: a}]`},
			bad: []string{"[{perSecond: 1}]", "[{namespace: A}]", "[{namespace: a/b}]", "[{namespace: a}, {namespace: a, open: 1}]", "[{namespace: a, open: -1}]", "[{namespace: a, perSecond: 100001}]",
				"[{namespace: a, clientPerSecond: -1}]", "[{namespace: a, clientOpen: 5001}]"}, onlyLatest: noSuch}},
	}
}

// linuxRules are the rules of fields for one platform.
func linuxRules() map[string][]rule {
	return map[string][]rule{
		"linux.conntrack.maxPerCore":            count(),
		"linux.conntrack.min":                   count(),
		"linux.conntrack.tcpEstablishedTimeout": duration(),
		"linux.conntrack.tcpCloseWaitTimeout":   duration(),
		"linux.conntrack.tcpBeLiberal":          boolean(),
		"linux.conntrack.udpTimeout":            duration(),
		"linux.conntrack.udpStreamTimeout":      duration(),
		"linux.masqueradeAll":                   boolean(),
		"linux.oomScoreAdj":                     {{good: []string{"-1000", "0", "1000"}, bad: []string{"-1001", "1001"}}},
		"windows.runAsService":                  boolean(),
	}
}

// backendRules are the rules of fields for one backend.
func backendRules() map[string][]rule {
	return map[string][]rule{
		"iptables.masqueradeBit":      append(bit(""), bit("mode: nftables")...),
		"iptables.localhostNodePorts": boolean(),
		"ipvs.masqueradeBit":          bit("mode: ipvs"),
		"ipvs.scheduler":              text(),
		"ipvs.excludeCIDRs":           {{with: "mode: ipvs", good: []string{"[]", "[10.0.0.0/8]"}, bad: []string{"[10.0.0.1]", "[x]"}}, {good: []string{"[x]"}}},
		"ipvs.strictARP":              boolean(),
		"ipvs.tcpTimeout":             ipvsTimeout(),
		"ipvs.tcpFinTimeout":          ipvsTimeout(),
		"ipvs.udpTimeout":             ipvsTimeout(),
		"nftables.fastPath":           {{good: []string{`""`, "Annotated", "All"}, bad: []string{"all", "true"}, onlyLatest: noSuch}},
		"nftables.masqueradeBit":      append(bit("mode: nftables"), rule{good: []string{"-1", "32"}}),
	}
}

// winkernelRules are the rules of fields for the Windows kernel backend.
func winkernelRules() map[string][]rule {
	return map[string][]rule{
		"winkernel.networkName":           text(),
		"winkernel.sourceVip":             text(),
		"winkernel.enableDSR":             boolean(),
		"winkernel.rootHnsEndpointName":   text(),
		"winkernel.forwardHealthCheckVip": boolean(),
	}
}

// TestEveryFieldHasARule fails if a field has no row, or a row has no field.
func TestEveryFieldHasARule(t *testing.T) {
	rows := map[string]string{}
	for path := range rules() {
		rows[strings.ToLower(path)] = path
	}
	leaves := leavesOf(reflect.TypeFor[config.KubeProxyConfiguration](), "")
	for _, leaf := range leaves {
		if rows[leaf] == "" {
			t.Errorf("no rule for %s", leaf)
		}
		delete(rows, leaf)
	}
	for _, path := range rows {
		t.Errorf("no field for the rule of %s", path)
	}
	if len(leaves) < 50 {
		t.Errorf("only %d fields were found; there are more", len(leaves))
	}
}

// leavesOf returns the fields of a struct that are not structs themselves, in lower case.
func leavesOf(t reflect.Type, prefix string) []string {
	atoms := []reflect.Type{reflect.TypeFor[metav1.Duration](), reflect.TypeFor[logsapi.TimeOrMetaDuration](), reflect.TypeFor[resource.QuantityValue]()}
	var paths []string
	for f := range t.Fields() {
		path := prefix + strings.ToLower(f.Name)
		switch {
		case f.Type == reflect.TypeFor[metav1.TypeMeta]():
		case f.Anonymous:
			paths = append(paths, leavesOf(f.Type, prefix)...)
		case f.Type.Kind() == reflect.Struct && !slices.Contains(atoms, f.Type):
			paths = append(paths, leavesOf(f.Type, path+".")...)
		default:
			paths = append(paths, path)
		}
	}
	return paths
}

// TestRules tries every value of every row in files of both versions.
func TestRules(t *testing.T) {
	for _, path := range slices.Sorted(maps.Keys(rules())) {
		for i, r := range rules()[path] {
			t.Run(fmt.Sprintf("%s/%d", path, i), func(t *testing.T) {
				tryRule(t, config.Version, path, r)
				if r.onlyLatest == "" {
					if r.oldGood != nil {
						r.good = r.oldGood
					}
					if r.oldBad != nil || r.oldGood != nil {
						r.bad = r.oldBad
					}
					tryRule(t, config.V1alpha1, path, r)
				}
			})
		}
	}
}

// tryRule checks the values of a rule in files of one version.
func tryRule(t *testing.T, version, path string, r rule) {
	t.Helper()
	if len(r.good)+len(r.bad) == 0 {
		t.Fatal("a rule without values")
	}
	for _, value := range r.good {
		if err := check(t, file(t, version, path, value, r.with)); err != nil {
			t.Errorf("%s: %s is refused: %v", version, value, err)
		}
	}
	place := path
	if version == config.V1alpha1 {
		place = config.PathInV1alpha1(path, modeOf(t, r.with))
	}
	if r.at != "" {
		place = r.at
	}
	for _, value := range r.bad {
		data := file(t, version, path, value, r.with)
		err := check(t, data)
		if err == nil {
			t.Errorf("%s: %s is accepted", version, value)
			continue
		}
		if !strings.Contains(err.Error(), place) || !strings.HasPrefix(err.Error(), "f:") {
			t.Errorf("%s: %s: the error does not name %s and its line: %v", version, value, place, err)
		}
	}
}

// check reads and validates a file as the proxy does.
func check(t *testing.T, data []byte) error {
	t.Helper()
	read, err := config.ParseFile("f", data)
	if err != nil {
		t.Fatalf("%v\n%s", err, data)
	}
	if len(read.Warnings) > 0 {
		t.Fatalf("%v\n%s", read.Warnings, data)
	}
	gate := featuregate.NewFeatureGate()
	if err := logsapi.AddFeatureGates(gate); err != nil {
		t.Fatal(err)
	}
	if read.Config.FeatureGates[string(logsapi.LoggingAlphaOptions)] {
		if err := gate.SetFromMap(map[string]bool{string(logsapi.LoggingAlphaOptions): true}); err != nil {
			t.Fatal(err)
		}
	}
	return read.Check(config.Validate(read.Config, gate))
}

// modeOf returns the mode that other fields set.
func modeOf(t *testing.T, with string) config.ProxyMode {
	t.Helper()
	fields := map[string]any{}
	if err := sigsyaml.Unmarshal([]byte(with), &fields); err != nil {
		t.Fatal(err)
	}
	mode, _ := fields["mode"].(string)
	return config.ProxyMode(mode)
}

// file returns a file of a version with a value at a path of v1alpha2 and the other fields of with.
func file(t *testing.T, version, path, value, with string) []byte {
	t.Helper()
	content := map[string]any{"apiVersion": config.GroupName + "/" + version, "kind": config.Kind}
	others := map[string]any{}
	if err := sigsyaml.Unmarshal([]byte(with), &others); err != nil {
		t.Fatal(err)
	}
	maps.Copy(content, others)
	if version == config.V1alpha1 {
		path = config.PathInV1alpha1(path, modeOf(t, with))
	}
	var parsed any
	if err := sigsyaml.Unmarshal([]byte(value), &parsed); err != nil {
		t.Fatal(err)
	}
	section := content
	names := strings.Split(path, ".")
	for _, name := range names[:len(names)-1] {
		inner, ok := section[name].(map[string]any)
		if !ok {
			inner = map[string]any{}
			section[name] = inner
		}
		section = inner
	}
	section[names[len(names)-1]] = parsed
	data, err := sigsyaml.Marshal(content)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
