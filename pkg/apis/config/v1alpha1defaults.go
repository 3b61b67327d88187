package config

import (
	"cmp"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	upstream "k8s.io/kube-proxy/config/v1alpha1"
	netutils "k8s.io/utils/net"
)

// setV1alpha1Defaults fills in missing values, except those that both versions treat alike, which [fromV1alpha1] does. A zero duration counts as
// missing if the default is not zero, because v1alpha1 cannot distinguish them.
func setV1alpha1Defaults(obj *upstream.KubeProxyConfiguration) {
	fill(&obj.BindAddress, "0.0.0.0")
	healthz, metrics := ServerAddresses(netutils.IsIPv6String(obj.BindAddress))
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

// DefaultV1alpha1 returns the default configuration of v1alpha1.
func DefaultV1alpha1() *KubeProxyConfiguration {
	var obj upstream.KubeProxyConfiguration
	setV1alpha1Defaults(&obj)
	return fromV1alpha1(&obj)
}
