package config

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const (
	oldHead    = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n"
	latestHead = "apiVersion: kubeproxy.config.k8s.io/v1alpha2\nkind: KubeProxyConfiguration\n"
)

// TestBadInput checks that invalid files give errors with their line.
func TestBadInput(t *testing.T) {
	tests := []struct {
		name string
		in   string
		want []string // one line each, in order
	}{
		{"not YAML", "mode: [a\n", []string{"f:1: is not YAML: did not find expected ',' or ']'"}},
		{"a tab", latestHead + "linux:\n\toomScoreAdj: 1\n", []string{"f:4: is not YAML: found character that cannot start any token"}},
		{"text", "iptables\n", []string{`f:1: is "iptables", not a set of fields; want kind KubeProxyConfiguration with apiVersion ` +
			"kubeproxy.config.k8s.io/v1alpha2 or kubeproxy.config.k8s.io/v1alpha1"}},
		{"a list", "- a\n", []string{"f:1: is a list, not a set of fields; want kind"}},
		{"empty", "", []string{"f: is empty; want kind KubeProxyConfiguration"}},
		{"comments only", "# nothing\n---\n# here\n", []string{"f: is empty"}},
		{"two documents", latestHead + "---\n" + latestHead, []string{"f:4: a second document begins here"}},
		{"no kind", "apiVersion: kubeproxy.config.k8s.io/v1alpha1\n", []string{"f: kind: missing; want kind KubeProxyConfiguration with apiVersion kubeproxy"}},
		{"no version", "kind: KubeProxyConfiguration\n", []string{"f: apiVersion: missing; want"}},
		{"wrong kind", "kind: KubeletConfiguration\napiVersion: kubeproxy.config.k8s.io/v1alpha1\n", []string{`f:1: kind: "KubeletConfiguration" is not served; want`}},
		{"wrong group", "kind: KubeProxyConfiguration\napiVersion: kubelet.config.k8s.io/v1alpha1\n", []string{`f:2: apiVersion: "kubelet.config.k8s.io/v1alpha1" is not served; want`}},
		{"unknown version", "kind: KubeProxyConfiguration\napiVersion: kubeproxy.config.k8s.io/v1\n",
			[]string{`f:2: apiVersion: "kubeproxy.config.k8s.io/v1" is not served; want kind KubeProxyConfiguration with apiVersion kubeproxy.config.k8s.io/v1alpha2 or kubeproxy.config.k8s.io/v1alpha1`}},
		{"a number for a duration", latestHead + "syncPeriod: 30\n", []string{`f:3: syncPeriod: want a duration with its unit, such as "30s" or "1h30m", not the number 30`}},
		{"no duration", latestHead + "minSyncPeriod: soon\n", []string{`f:3: minSyncPeriod: want a duration with its unit, such as "30s" or "1h30m", not "soon"`}},
		{"a number for a string", latestHead + "hostnameOverride: 17\n", []string{"f:3: hostnameOverride: want a string in quotes, not the number 17"}},
		{"a string for a number", latestHead + "linux:\n  oomScoreAdj: low\n", []string{`f:4: linux.oomScoreAdj: want a whole number from -2147483648 to 2147483647, not "low"`}},
		{"too great a number", latestHead + "linux:\n  conntrack:\n    min: 3000000000\n", []string{"f:5: linux.conntrack.min: want a whole number from -2147483648 to 2147483647, not the number 3000000000"}},
		{"a fraction", latestHead + "linux: {oomScoreAdj: 0.5}\n", []string{"f:3: linux.oomScoreAdj: want a whole number"}},
		{"no boolean", latestHead + "enableProfiling: maybe\n", []string{`f:3: enableProfiling: want true or false, not "maybe"`}},
		{"a list for a section", latestHead + "linux: []\n", []string{"f:3: linux: want a section with fields, not a list"}},
		{"a value for a list", latestHead + "nodePortAddresses: primary\n", []string{`f:3: nodePortAddresses: want a list, not "primary"`}},
		{"a section in a list", latestHead + "nodePortAddresses:\n- primary\n- a: b\n", []string{"f:5: nodePortAddresses[1]: want a string, not a section with fields"}},
		{"no gate", latestHead + "featureGates:\n  A: on\n  B: 1\n", []string{"f:5: featureGates.B: want true or false, not the number 1"}},
		{"all at once", latestHead + "a: 1\nsyncPeriod: 1\nlinux:\n  oomScoreAdj: x\n  oomScoreAdj: 1\n", []string{
			"f:3: a: unknown field", "f:4: syncPeriod: want a duration", "f:6: linux.oomScoreAdj: want a whole number", "f:7: linux.oomScoreAdj: duplicate field; the first is in line 6"}},
		{"an alias in the wrong place", latestHead + "mode: &m nftables\nlinux: *m\n", []string{`f:3: linux: want a section with fields, not "nftables"`}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			file, err := ParseFile("f", []byte(tt.in))
			if err == nil {
				err = file.Check(nil)
			}
			var problems Problems
			if !errors.As(err, &problems) {
				t.Fatalf("error is %v, not Problems", err)
			}
			if len(problems) != len(tt.want) {
				t.Fatalf("%d problems, want %d:\n%v", len(problems), len(tt.want), err)
			}
			for i, line := range strings.Split(err.Error(), "\n") {
				if !strings.HasPrefix(line, tt.want[i]) {
					t.Errorf("problem %d:\n got %s\nwant %s", i, line, tt.want[i])
				}
			}
		})
	}
}

// TestStrictness checks that unknown and duplicate fields are reported with their line in both versions, and when they
// are errors.
func TestStrictness(t *testing.T) {
	tests := []struct {
		name  string
		in    string
		fatal bool
		want  []string
	}{
		{"v1alpha1 continues", oldHead + "foo: 1\nmode: iptables\nmode: nftables\n", false,
			[]string{"f:3: foo: unknown field", "f:5: mode: duplicate field; the first is in line 4"}},
		{"v1alpha2 does not", latestHead + "foo: 1\nmode: iptables\nmode: nftables\n", true,
			[]string{"f:3: foo: unknown field", "f:5: mode: duplicate field; the first is in line 4"}},
		{"unless told so", latestHead + "configHardFail: false\nmode: iptables\nmode: nftables\n", false,
			[]string{"f:5: mode: duplicate field; the first is in line 4"}},
		{"where a field has gone", latestHead + "conntrack:\n  min: 1\nclusterCIDR: 10.0.0.0/8\nportRange: 1-2\niptables:\n  syncPeriod: 1s\n  masqueradeall: true\n", true, []string{
			"f:3: conntrack: unknown field; in v1alpha2 it is linux.conntrack",
			"f:5: clusterCIDR: unknown field; in v1alpha2 it is detectLocal.clusterCIDRs",
			"f:6: portRange: unknown field; v1alpha2 has dropped it, as it had no effect",
			"f:8: iptables.syncPeriod: unknown field; in v1alpha2 it is syncPeriod",
			"f:9: iptables.masqueradeall: unknown field"}},
		{"where a field was", oldHead + "syncPeriod: 1s\n", false, []string{"f:3: syncPeriod: unknown field; in v1alpha1 it is iptables.syncPeriod"}},
		{"a gate twice", latestHead + "featureGates:\n  A: true\n  A: false\n", true, []string{"f:5: featureGates.A: duplicate field; the first is in line 4"}},
		{"gates merged in", latestHead + "featureGates: {<<: &x {A: true}, B: true}\n", false, nil},
		{"the case of letters counts", oldHead + "Mode: ipvs\n", false, []string{"f:3: Mode: unknown field; did you mean mode?"}},
		{"behind an alias", latestHead + "iptables: &x {foo: 1}\nnftables: *x\n", true, []string{"f:3: iptables.foo: unknown field", "f:3: nftables.foo: unknown field"}},
		{"merged in", oldHead + "iptables: &x {masqueradeBit: 3, foo: 1}\nnftables: {<<: *x, masqueradeBit: 4}\n", false,
			[]string{"f:3: iptables.foo: unknown field", "f:3: nftables.foo: unknown field"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			file, err := ParseFile("f", []byte(tt.in))
			if err != nil {
				t.Fatal(err)
			}
			if got, want := file.Warnings.Error(), strings.Join(tt.want, "\n"); got != want {
				t.Errorf("warnings:\n%s\nwant:\n%s", got, want)
			}
			if fatal := file.Check(nil) != nil; fatal != tt.fatal {
				t.Errorf("fatal is %t, want %t", fatal, tt.fatal)
			}
		})
	}
}

// TestYAML11Values checks that values are parsed as in Kubernetes, whose parser implements YAML 1.1, and that JSON
// is accepted.
func TestYAML11Values(t *testing.T) {
	file, err := ParseFile("f", []byte(oldHead+"ipvs: {strictARP: yes}\noomScoreAdj: 0x10\nnodePortAddresses: null\n---\n"))
	if err != nil {
		t.Fatal(err)
	}
	if !file.Config.IPVS.StrictARP || file.Config.Linux.OOMScoreAdj != 16 {
		t.Errorf("got %+v", file.Config)
	}
	file, err = ParseFile("f", []byte("{\n\t\"apiVersion\": \"kubeproxy.config.k8s.io/v1alpha2\",\n\t\"kind\": \"KubeProxyConfiguration\",\n\t\"linux\": {\"oomScoreAdj\": 7, \"x\": 1}}"))
	if err != nil {
		t.Fatal(err)
	}
	if file.Config.Linux.OOMScoreAdj != 7 || file.Warnings.Error() != "f:4: linux.x: unknown field" {
		t.Errorf("got %d and %v", file.Config.Linux.OOMScoreAdj, file.Warnings)
	}
}

// TestMissingValues checks that a field that is missing, or null, has its default, and that an explicit zero has not.
func TestMissingValues(t *testing.T) {
	for head, fields := range map[string]string{
		oldHead: "oomScoreAdj: null\nconntrack: {maxPerCore: null, udpTimeout: null}\niptables: null\nhealthzBindAddress:\nlogging: {flushFrequency: null}\n",
		latestHead: "linux: {oomScoreAdj: null, conntrack: {maxPerCore: null, udpTimeout: null}}\nsyncPeriod: null\niptables: null\n" +
			"healthzBindAddress:\nconfigHardFail: null\nclientConnection: {qps: 0, contentType: ''}\n",
	} {
		file, err := ParseFile("f", []byte(head+fields))
		if err != nil {
			t.Fatal(err)
		}
		if want := DefaultsOf(file.Version); len(file.Warnings) > 0 || !equality.Semantic.DeepEqual(want, file.Config) {
			t.Errorf("%s: %v (-want +got):\n%s", file.Version, file.Warnings, cmp.Diff(want, file.Config))
		}
	}
	file, err := ParseFile("f", []byte(latestHead+"minSyncPeriod: 0s\nhealthzBindAddress: ''\nbindAddressHardFail: false\nlinux: {oomScoreAdj: 0}\nnodeIPOverride: ['fd00::1']\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := DefaultsOf(Version)
	want.MinSyncPeriod.Duration, want.BindAddressHardFail, want.Linux.OOMScoreAdj = 0, false, 0
	want.HealthzBindAddress, want.MetricsBindAddress, want.NodeIPOverride = "", "[::1]:10249", []string{"fd00::1"}
	if !equality.Semantic.DeepEqual(want, file.Config) {
		t.Errorf("explicit zeros (-want +got):\n%s", cmp.Diff(want, file.Config))
	}
}

// TestCheckFindsLines checks that errors have the line and the field name of the file's version.
func TestCheckFindsLines(t *testing.T) {
	errs := field.ErrorList{
		field.Invalid(field.NewPath("linux", "oomScoreAdj"), 5, "wrong"),
		field.Invalid(field.NewPath("syncPeriod"), 5, "wrong"),
		field.Required(field.NewPath("linux", "conntrack", "min"), "wrong"),
	}
	file, err := ParseFile("f", []byte(oldHead+"conntrack:\n  maxPerCore: 1\nnftables:\n  syncPeriod: 1s\nmode: nftables\nportRange: x\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := "f:3: conntrack.min: Required value: wrong\n" +
		"f:6: nftables.syncPeriod: Invalid value: 5: wrong\n" +
		"f:8: portRange: Invalid value: \"x\": must be a range of ports, such as 10000-20000\n" +
		"f: oomScoreAdj: Invalid value: 5: wrong"
	if got := file.Check(errs); got == nil || got.Error() != want {
		t.Errorf("got:\n%v\nwant:\n%s", got, want)
	}
}

// TestUnreadable checks that a file that cannot be read gives one error with the reason, quickly.
func TestUnreadable(t *testing.T) {
	directory := t.TempDir()
	large := filepath.Join(directory, "large")
	if err := os.WriteFile(large, bytes.Repeat([]byte("["), 10<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	deep := filepath.Join(directory, "deep")
	if err := os.WriteFile(deep, append([]byte(latestHead+"linux: "), bytes.Repeat([]byte("["), MaxSize-200)...), 0o600); err != nil {
		t.Fatal(err)
	}
	wide := filepath.Join(directory, "wide")
	if err := os.WriteFile(wide, append([]byte(latestHead+"nodePortAddresses:\n"), bytes.Repeat([]byte("- []\n"), MaxSize/6)...), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		directory:                     "is a directory; want a file",
		filepath.Join(directory, "x"): "no such file or directory",
		large:                         "larger than 1 MiB",
		deep:                          "exceeded max depth",
		wide:                          "nodePortAddresses[0]: want a string, not a list",
	} {
		_, err := ReadFile(name)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: got %.200v, want %q", name, err, want)
		}
		if lines := strings.Count(err.Error(), "\n"); lines >= maxProblems {
			t.Errorf("%s: %d lines of errors", name, lines+1)
		}
	}
}

// TestWrite checks that a file is replaced atomically.
func TestWrite(t *testing.T) {
	directory := t.TempDir()
	name := filepath.Join(directory, "f")
	link := filepath.Join(directory, "link")
	if err := os.Symlink("f", link); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte("old"), 0o640); err != nil {
		t.Fatal(err)
	}
	if err := WriteFile(link, []byte("new")); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(name); err != nil || string(data) != "new" {
		t.Errorf("through a link: %q, %v", data, err)
	}
	if info, err := os.Stat(name); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("the mode changed: %v, %v", info.Mode(), err)
	}
	if err := WriteFile(filepath.Join(directory, "missing", "f"), nil); err == nil {
		t.Error("writing into a missing directory succeeded")
	}
	if entries, err := os.ReadDir(directory); err != nil || len(entries) != 2 {
		t.Errorf("something is left over: %v, %v", entries, err)
	}
}

// FuzzParse checks that no input causes a panic or an empty error.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{"", "a: &a [*a]", latestHead, oldHead + "mode: x\n<<: {}\n", latestHead + "x: &x {<<: *x}\nlinux: *x\n", "{}", "? [a]\n: b\n", latestHead + "? {a: b}\n: c\n",
		latestHead + "linux: &x {" + strings.Repeat("<<: *x, ", 12) + "}\n"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := ParseFile("f", data)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "f:") {
				t.Errorf("error does not name the file: %v", err)
			}
			return
		}
		if file.Config == nil {
			t.Error("neither a configuration nor an error")
		}
	})
}
