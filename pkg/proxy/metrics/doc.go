// Package metrics measures what the proxy does, and serves that together with what else one asks a running
// proxy: its mode, its configuration, its profile.
//
// Everything named kubeproxy_ is an interface: dashboards, alerts and load tests read it, so names, labels and
// buckets are those of kube-proxy. What only this proxy can tell is named serviceproxy_.
package metrics
