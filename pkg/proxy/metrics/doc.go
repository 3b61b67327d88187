// Package metrics measures what the proxy does, and serves that together with what else one asks a running
// proxy: its mode, its configuration, its profile.
//
// Everything named kubeproxy_ is an interface: dashboards, alerts and load tests read it, so names, labels and
// buckets are those of kube-proxy. What only this proxy can tell is named serviceproxy_.
//
// There is no metric of each Service's connections. The kernel counts them, by frontend and endpoint in iptables mode
// (iptables-save -c -t nat) and by endpoint in nftables mode (nft list map ip kube-proxy endpoints), but reading the
// counters takes as long as a restart does.
package metrics
