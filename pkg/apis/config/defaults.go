package config

import (
	"cmp"
	"net"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	netutils "k8s.io/utils/net"
)

// The default ports of the two servers.
const (
	healthzPort = "10256"
	metricsPort = "10249"
)

// Default returns the default configuration. The servers' addresses have the family of the first of the node's IPs, if these are
// configured. A file is decoded into it, so that an explicit zero differs from a missing value.
func Default(nodeIPs ...string) *KubeProxyConfiguration {
	healthz, metrics := ServerAddresses(len(nodeIPs) > 0 && netutils.IsIPv6String(nodeIPs[0]))
	c := &KubeProxyConfiguration{
		TypeMeta:            typeMeta(),
		HealthzBindAddress:  healthz,
		MetricsBindAddress:  metrics,
		BindAddressHardFail: true,
		ConfigHardFail:      true,
		SyncPeriod:          metav1.Duration{Duration: 30 * time.Second},
		MinSyncPeriod:       metav1.Duration{Duration: time.Second},
		ConfigSyncPeriod:    metav1.Duration{Duration: 15 * time.Minute},
		Linux: KubeProxyLinuxConfiguration{
			Conntrack: KubeProxyConntrackConfiguration{
				MaxPerCore:            32 * 1024,
				Min:                   128 * 1024,
				TCPEstablishedTimeout: metav1.Duration{Duration: 24 * time.Hour},
				TCPCloseWaitTimeout:   metav1.Duration{Duration: time.Hour},
			},
			OOMScoreAdj: -999,
		},
		IPTables: KubeProxyIPTablesConfiguration{MasqueradeBit: 14},
		IPVS:     KubeProxyIPVSConfiguration{MasqueradeBit: 14},
		NFTables: KubeProxyNFTablesConfiguration{MasqueradeBit: 14},
	}
	c.Complete()
	return c
}

// Complete adds the ports to servers' addresses without one, and sets the fields whose zero means their default.
func (c *KubeProxyConfiguration) Complete() {
	c.HealthzBindAddress = serverAddress(c.HealthzBindAddress, healthzPort)
	c.MetricsBindAddress = serverAddress(c.MetricsBindAddress, metricsPort)

	client, logging := &c.ClientConnection, &c.Logging
	client.ContentType = cmp.Or(client.ContentType, "application/vnd.kubernetes.protobuf")
	client.QPS = cmp.Or(client.QPS, 5)
	client.Burst = cmp.Or(client.Burst, 10)
	logging.Format = cmp.Or(logging.Format, "text")
	logging.FlushFrequency.Duration = cmp.Or(logging.FlushFrequency.Duration, 5*time.Second)
}

// ServerAddresses returns the default addresses of the health check and metrics servers, IP:port, for the node's primary family.
func ServerAddresses(ipv6 bool) (healthz, metrics string) {
	if ipv6 {
		return net.JoinHostPort("::", healthzPort), net.JoinHostPort("::1", metricsPort)
	}
	return net.JoinHostPort("0.0.0.0", healthzPort), net.JoinHostPort("127.0.0.1", metricsPort)
}

// serverAddress adds the port to a bare IP, and writes the IP as sockets need it, without leading zeros; it leaves anything else to
// validation.
func serverAddress(address, port string) string {
	host := address
	if h, p, err := net.SplitHostPort(address); err == nil {
		host, port = h, p
	}
	if ip := netutils.ParseIPSloppy(host); ip != nil {
		return net.JoinHostPort(ip.String(), port)
	}
	return address
}
