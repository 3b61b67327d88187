package config

import (
	"net"
	"strconv"

	upstream "k8s.io/kube-proxy/config/v1alpha1"
	netutils "k8s.io/utils/net"
)

// Flags are the values of the command line: the fields of v1alpha1 that have flags, and what no field is for.
type Flags struct {
	upstream.KubeProxyConfiguration
	// HealthzPort and MetricsPort replace the ports of the servers' addresses; 0 disables the server.
	HealthzPort, MetricsPort int32
}

// NewFlags returns the flags' defaults.
func NewFlags() *Flags {
	return &Flags{KubeProxyConfiguration: *toV1alpha1(DefaultV1alpha1()), HealthzPort: 10256, MetricsPort: 10249}
}

// Config returns the configuration of a command line; set reports whether a flag was given. In contrast to a file, a zero period is a
// value, the flags of iptables mode apply to nftables mode too, and the health check server can be disabled.
func (f *Flags) Config(set func(flag string) bool) *KubeProxyConfiguration {
	in := f.DeepCopy()
	in.NFTables.SyncPeriod, in.NFTables.MinSyncPeriod, in.NFTables.MasqueradeAll = in.IPTables.SyncPeriod, in.IPTables.MinSyncPeriod, in.IPTables.MasqueradeAll

	healthz, metrics := ServerAddresses(netutils.IsIPv6String(in.BindAddress))
	if !set("healthz-bind-address") {
		in.HealthzBindAddress = healthz
	}
	if !set("metrics-bind-address") || in.MetricsBindAddress == "" {
		in.MetricsBindAddress = metrics
	}
	out := fromV1alpha1(in)
	if set("healthz-port") {
		out.HealthzBindAddress = withPort(out.HealthzBindAddress, f.HealthzPort)
	}
	if set("metrics-port") {
		out.MetricsBindAddress = withPort(out.MetricsBindAddress, f.MetricsPort)
	}
	return out
}

// withPort replaces the port of an address; 0 disables the server.
func withPort(address string, port int32) string {
	if port == 0 || address == "" {
		return ""
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return address // validation reports what is wrong with it
	}
	return net.JoinHostPort(host, strconv.Itoa(int(port)))
}
