// Package metrics collects the proxy's metrics; package serve serves them.
//
// The names kubeproxy_* are an interface: dashboards, alerts and load tests use them, so names, labels and buckets are
// those of kube-proxy. Metrics that only this proxy has are named serviceproxy_*.
//
// Counters of the kernel are read at each scrape. They restart at 0 when their rule or element is replaced; what is exposed
// here only grows. docs/metrics.md is generated from this package.
package metrics
