package v1alpha2

import (
	"cmp"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	netutils "k8s.io/utils/net"
	"k8s.io/utils/ptr"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/config/v1alpha1"
)

// SetDefaults_KubeProxyConfiguration fills in missing values. An explicit zero is kept: fields whose default is not
// zero are pointers.
func SetDefaults_KubeProxyConfiguration(obj *KubeProxyConfiguration) {
	setServerDefaults(obj)
	setConntrackDefaults(&obj.Linux.Conntrack)

	fill(&obj.ClientConnection.ContentType, "application/vnd.kubernetes.protobuf")
	fill(&obj.ClientConnection.QPS, 5)
	fill(&obj.ClientConnection.Burst, 10)
	fill(&obj.Logging.Format, "text")
	fill(&obj.Logging.FlushFrequency.Duration, 5*time.Second)

	fill(&obj.BindAddressHardFail, new(true))
	fill(&obj.ConfigHardFail, new(true))
	fill(&obj.SyncPeriod, &metav1.Duration{Duration: 30 * time.Second})
	fill(&obj.MinSyncPeriod, &metav1.Duration{Duration: time.Second})
	fill(&obj.ConfigSyncPeriod, &metav1.Duration{Duration: 15 * time.Minute})
	fill(&obj.Linux.OOMScoreAdj, ptr.To[int32](-999))
	fill(&obj.IPTables.MasqueradeBit, ptr.To[int32](14))
	fill(&obj.IPVS.MasqueradeBit, ptr.To[int32](14))
	fill(&obj.NFTables.MasqueradeBit, ptr.To[int32](14))
}

// setServerDefaults adds a port to the servers' addresses, and sets missing addresses, in the primary family if it is
// overridden.
func setServerDefaults(obj *KubeProxyConfiguration) {
	ipv6 := len(obj.NodeIPOverride) > 0 && netutils.IsIPv6String(obj.NodeIPOverride[0])
	healthz, metrics := v1alpha1.ServerAddresses(ipv6)
	fill(&obj.HealthzBindAddress, &healthz)
	fill(&obj.MetricsBindAddress, &metrics)
	*obj.HealthzBindAddress = v1alpha1.AppendPort(*obj.HealthzBindAddress, v1alpha1.HealthzPort)
	*obj.MetricsBindAddress = v1alpha1.AppendPort(*obj.MetricsBindAddress, v1alpha1.MetricsPort)
}

func setConntrackDefaults(c *KubeProxyConntrackConfiguration) {
	fill(&c.MaxPerCore, ptr.To[int32](32*1024))
	fill(&c.Min, ptr.To[int32](128*1024))
	fill(&c.TCPEstablishedTimeout, &metav1.Duration{Duration: 24 * time.Hour})
	fill(&c.TCPCloseWaitTimeout, &metav1.Duration{Duration: time.Hour})
}

// fill sets a field that is still zero.
func fill[T comparable](field *T, value T) { *field = cmp.Or(*field, value) }
