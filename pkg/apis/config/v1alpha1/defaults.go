package v1alpha1

import (
	"cmp"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	upstream "k8s.io/kube-proxy/config/v1alpha1"
	netutils "k8s.io/utils/net"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/config"
)

// SetDefaults fills in missing values, except those that both versions treat alike, which [ToLatest] does. A zero duration counts as
// missing if the default is not zero, because this version cannot distinguish them.
func SetDefaults(obj *upstream.KubeProxyConfiguration) {
	fill(&obj.BindAddress, "0.0.0.0")
	healthz, metrics := config.ServerAddresses(netutils.IsIPv6String(obj.BindAddress))
	fill(&obj.HealthzBindAddress, healthz)
	fill(&obj.MetricsBindAddress, metrics)

	fill(&obj.Conntrack.MaxPerCore, new(int32(32*1024)))
	fill(&obj.Conntrack.Min, new(int32(128*1024)))
	fill(&obj.Conntrack.TCPEstablishedTimeout, &metav1.Duration{Duration: 24 * time.Hour})
	fill(&obj.Conntrack.TCPCloseWaitTimeout, &metav1.Duration{Duration: time.Hour})

	fill(&obj.ConfigSyncPeriod.Duration, 15*time.Minute)
	fill(&obj.IPTables.SyncPeriod.Duration, 30*time.Second)
	fill(&obj.IPTables.MinSyncPeriod.Duration, time.Second)
	fill(&obj.NFTables.SyncPeriod.Duration, 30*time.Second)
	fill(&obj.NFTables.MinSyncPeriod.Duration, time.Second)
	fill(&obj.IPVS.SyncPeriod.Duration, 30*time.Second)
	fill(&obj.IPTables.MasqueradeBit, new(int32(14)))
	fill(&obj.NFTables.MasqueradeBit, new(int32(14)))
	fill(&obj.IPTables.LocalhostNodePorts, new(true))
	fill(&obj.OOMScoreAdj, new(int32(-999)))
}

// fill sets a field that is still zero.
func fill[T comparable](field *T, value T) { *field = cmp.Or(*field, value) }

// Default returns the default configuration of this version.
func Default() *config.KubeProxyConfiguration {
	var obj upstream.KubeProxyConfiguration
	SetDefaults(&obj)
	return ToLatest(&obj)
}
