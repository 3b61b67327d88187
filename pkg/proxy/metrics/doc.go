// Package metrics collects the proxy's metrics, and serves them together with other diagnostic pages: the proxy mode, the
// configuration, profiles.
//
// The names kubeproxy_* are an interface: dashboards, alerts and load tests use them, so names, labels and buckets are
// those of kube-proxy. Metrics that only this proxy has are named serviceproxy_*.
//
// There are no metrics of connections by Service. The kernel counts them, by frontend and endpoint in iptables mode
// (iptables-save -c -t nat) and by endpoint in nftables mode (nft list map ip kube-proxy endpoints), but reading the
// counters takes as long as a restart.
package metrics
