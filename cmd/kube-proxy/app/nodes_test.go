package app

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/config"
)

// parse parses a command line of the root command without running it.
func parse(t *testing.T, args ...string) (*Options, *pflag.FlagSet) {
	t.Helper()
	opts := NewOptions()
	flags := pflag.NewFlagSet("kube-proxy", pflag.ContinueOnError)
	flags.SetOutput(io.Discard)
	groups := opts.FlagSets()
	flags.SetNormalizeFunc(groups.NormalizeNameFunc)
	for _, name := range groups.Order {
		flags.AddFlagSet(groups.FlagSets[name])
	}
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	return opts, flags
}

// load returns the configuration of a command line.
func load(t *testing.T, args ...string) (*Loaded, error) {
	t.Helper()
	opts, flags := parse(t, args...)
	return opts.load(flags)
}

// installed is the configuration that a node's command line must result in.
type installed struct {
	expect   func(cfg *config.KubeProxyConfiguration) // sets what differs from v1alpha1's defaults
	warnings []string
}

// nodes are the directories of testdata/nodes.
func nodes() map[string]installed {
	return map[string]installed{
		"kubeadm": {expect: func(cfg *config.KubeProxyConfiguration) {
			cfg.HostnameOverride = "worker-1"
			cfg.ClientConnection.Kubeconfig = "/var/lib/kube-proxy/kubeconfig.conf"
			cfg.Mode = "nftables"
			cfg.DetectLocal.ClusterCIDRs = []string{"10.244.0.0/16", "fd00:10:244::/56"}
		}},
		"kind": {expect: func(cfg *config.KubeProxyConfiguration) {
			cfg.HostnameOverride = "kind-worker"
			cfg.ClientConnection.Kubeconfig = "/var/lib/kube-proxy/kubeconfig.conf"
			cfg.Mode = "iptables"
			cfg.DetectLocal.ClusterCIDRs = []string{"10.244.0.0/16"}
			cfg.FeatureGates = map[string]bool{"KubeletInUserNamespace": true}
			cfg.Linux.Conntrack.MaxPerCore = 0
			cfg.Linux.Conntrack.TCPCloseWaitTimeout.Duration = 0
			cfg.Linux.Conntrack.TCPEstablishedTimeout.Duration = 0
		}, warnings: []string{"feature gate KubeletInUserNamespace has no effect"}},
		"k3s": {expect: func(cfg *config.KubeProxyConfiguration) {
			rancher(cfg, "k3s")
			cfg.HostnameOverride = "edge-7"
			cfg.Mode = "iptables"
			cfg.DetectLocal.ClusterCIDRs = []string{"10.42.0.0/16", "2001:cafe:42::/56"}
		}},
		"rke2": {expect: func(cfg *config.KubeProxyConfiguration) {
			rancher(cfg, "rke2")
			cfg.HostnameOverride = "rke2-agent"
			cfg.Mode = "nftables"
			cfg.DetectLocal.ClusterCIDRs = []string{"10.42.0.0/16"}
			cfg.MetricsBindAddress = "0.0.0.0:10249"
		}},
		"kops": {expect: func(cfg *config.KubeProxyConfiguration) {
			cfg.HostnameOverride = "i-0123456789abcdef0"
			cfg.ClientConnection.Kubeconfig = "/var/lib/kube-proxy/kubeconfig"
			cfg.DetectLocal.ClusterCIDRs = []string{"100.96.0.0/11"}
			cfg.Linux.Conntrack.MaxPerCore = 131072
			cfg.Linux.OOMScoreAdj = -998
			cfg.Logging.Verbosity = 2
		}},
		"eks": {expect: func(cfg *config.KubeProxyConfiguration) {
			cfg.HostnameOverride = "ip-10-0-1-2.eu-central-1.compute.internal"
			cfg.ClientConnection.Kubeconfig = "/var/lib/kube-proxy/kubeconfig"
			cfg.Mode = "iptables"
			cfg.MetricsBindAddress = "0.0.0.0:10249"
			cfg.Linux.OOMScoreAdj = -998
			cfg.Logging.Verbosity = 2
		}, warnings: []string{"config.conf:35: udpIdleTimeout: unknown field"}},
		"gke": {expect: func(cfg *config.KubeProxyConfiguration) {
			cfg.ClientConnection.Kubeconfig = "/var/lib/kube-proxy/kubeconfig"
			cfg.DetectLocalMode = "NodeCIDR"
			cfg.DetectLocal.ClusterCIDRs = []string{"10.4.0.0/14"}
			cfg.FeatureGates = map[string]bool{"RotateKubeletServerCertificate": true, "EndpointSliceProxying": true}
			cfg.SyncPeriod.Duration, cfg.MinSyncPeriod.Duration = time.Minute, 10*time.Second
			cfg.Linux.OOMScoreAdj = -998
			cfg.Logging.Verbosity = 2
		}, warnings: []string{"feature gate EndpointSliceProxying has no effect", "feature gate RotateKubeletServerCertificate has no effect"}},
	}
}

// TestNodes checks that command lines and files as installers write them are accepted, have the same meaning as in kube-proxy,
// and do not change when they are converted to either version.
func TestNodes(t *testing.T) {
	tests := nodes()
	directories, err := os.ReadDir("testdata/nodes")
	if err != nil || len(directories) != len(tests) {
		t.Fatalf("%d directories for %d tests, %v", len(directories), len(tests), err)
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := load(t, nodeArgs(t, name)...)
			if err != nil {
				t.Fatal(err)
			}
			want := DefaultConfig()
			tt.expect(want)
			if !equality.Semantic.DeepEqual(want, got.Config) {
				t.Errorf("(-want +got):\n%s", cmp.Diff(want, got.Config))
			}
			if len(got.Warnings) != len(tt.warnings) {
				t.Fatalf("warnings are %q", got.Warnings)
			}
			for i, warning := range tt.warnings {
				if !strings.Contains(got.Warnings[i], warning) {
					t.Errorf("warning %d is %q, want %q", i, got.Warnings[i], warning)
				}
			}
			for _, version := range config.Versions() {
				again := throughFile(t, got.Config, version)
				if !equality.Semantic.DeepEqual(got.Config, again) {
					t.Errorf("written in %s it differs (-before +after):\n%s", version, cmp.Diff(got.Config, again))
				}
			}
		})
	}
}

// rancher sets what k3s and RKE2 set alike.
func rancher(cfg *config.KubeProxyConfiguration, product string) {
	cfg.ClientConnection.Kubeconfig = "/var/lib/rancher/" + product + "/agent/kubeproxy.kubeconfig"
	cfg.HealthzBindAddress = "127.0.0.1:10256"
	cfg.Linux.Conntrack.MaxPerCore = 0
	cfg.Linux.Conntrack.TCPCloseWaitTimeout.Duration = 0
	cfg.Linux.Conntrack.TCPEstablishedTimeout.Duration = 0
}

// nodeArgs reads the command line of a node; --config is relative to its directory.
func nodeArgs(t *testing.T, name string) []string {
	t.Helper()
	directory := filepath.Join("testdata", "nodes", name)
	data, err := os.ReadFile(filepath.Join(directory, "args"))
	if err != nil {
		t.Fatal(err)
	}
	args := strings.Fields(string(data))
	for i := range args {
		if file, found := strings.CutPrefix(args[i], "--config="); found {
			args[i] = "--config=" + filepath.Join(directory, file)
		}
	}
	return args
}

// throughFile writes a configuration as the program does, and reads it as the program does.
func throughFile(t *testing.T, cfg *config.KubeProxyConfiguration, version string) *config.KubeProxyConfiguration {
	t.Helper()
	var written bytes.Buffer
	if err := WriteConfig("-", &written, cfg, version); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(name, written.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	again, err := load(t, "--config="+name)
	if err != nil {
		t.Fatal(err)
	}
	return again.Config
}
