package v1alpha1

import (
	"cmp"
	"net"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	logsapi "k8s.io/component-base/logs/api/v1"
	upstream "k8s.io/kube-proxy/config/v1alpha1"
	netutils "k8s.io/utils/net"
	"k8s.io/utils/ptr"
)

// The default ports of the two servers.
const (
	HealthzPort = "10256"
	MetricsPort = "10249"
)

// SetDefaults_KubeProxyConfiguration fills in missing values. A zero duration counts as missing if the default is not
// zero, because this version cannot distinguish them.
func SetDefaults_KubeProxyConfiguration(obj *upstream.KubeProxyConfiguration) {
	setServerDefaults(obj)
	setConntrackDefaults(&obj.Conntrack)

	fill(&obj.ClientConnection.ContentType, "application/vnd.kubernetes.protobuf")
	fill(&obj.ClientConnection.QPS, 5)
	fill(&obj.ClientConnection.Burst, 10)
	logsapi.SetRecommendedLoggingConfiguration(&obj.Logging)
	// Only the spelling of the duration, so that 5000000000 and "5s" compare equal.
	obj.Logging.FlushFrequency.SerializeAsString = true

	fill(&obj.ConfigSyncPeriod.Duration, 15*time.Minute)
	fill(&obj.IPTables.SyncPeriod.Duration, 30*time.Second)
	fill(&obj.IPTables.MinSyncPeriod.Duration, time.Second)
	fill(&obj.NFTables.SyncPeriod.Duration, 30*time.Second)
	fill(&obj.NFTables.MinSyncPeriod.Duration, time.Second)
	fill(&obj.IPVS.SyncPeriod.Duration, 30*time.Second)
	fill(&obj.IPTables.MasqueradeBit, ptr.To[int32](14))
	fill(&obj.NFTables.MasqueradeBit, ptr.To[int32](14))
	fill(&obj.IPTables.LocalhostNodePorts, new(true))
	fill(&obj.OOMScoreAdj, ptr.To[int32](-999))
}

// setServerDefaults adds a port to the servers' addresses, and sets missing addresses in the family of bindAddress.
func setServerDefaults(obj *upstream.KubeProxyConfiguration) {
	fill(&obj.BindAddress, "0.0.0.0")
	healthz, metrics := ServerAddresses(netutils.IsIPv6String(obj.BindAddress))
	fill(&obj.HealthzBindAddress, healthz)
	fill(&obj.MetricsBindAddress, metrics)
	obj.HealthzBindAddress = AppendPort(obj.HealthzBindAddress, HealthzPort)
	obj.MetricsBindAddress = AppendPort(obj.MetricsBindAddress, MetricsPort)
}

// ServerAddresses returns the default addresses of the health check and metrics servers, IP:port, for the node's
// primary family.
func ServerAddresses(ipv6 bool) (healthz, metrics string) {
	if ipv6 {
		return net.JoinHostPort("::", HealthzPort), net.JoinHostPort("::1", MetricsPort)
	}
	return net.JoinHostPort("0.0.0.0", HealthzPort), net.JoinHostPort("127.0.0.1", MetricsPort)
}

// AppendPort adds the port to a bare IP; it leaves anything else to validation.
func AppendPort(address, port string) string {
	if ip := netutils.ParseIPSloppy(address); ip != nil {
		return net.JoinHostPort(address, port)
	}
	return address
}

func setConntrackDefaults(c *upstream.KubeProxyConntrackConfiguration) {
	fill(&c.MaxPerCore, ptr.To[int32](32*1024))
	fill(&c.Min, ptr.To[int32](128*1024))
	fill(&c.TCPEstablishedTimeout, &metav1.Duration{Duration: 24 * time.Hour})
	fill(&c.TCPCloseWaitTimeout, &metav1.Duration{Duration: time.Hour})
}

// fill sets a field that is still zero.
func fill[T comparable](field *T, value T) { *field = cmp.Or(*field, value) }
