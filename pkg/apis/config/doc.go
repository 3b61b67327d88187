// Package config is the internal form of the proxy's configuration.
//
// Both file versions and the command line are converted to it, with all defaults; nothing else in the program reads a
// configuration. The fields have the names and places of v1alpha2, whose doc comments have their units, defaults and
// effects. Where v1alpha2 uses a pointer to distinguish a missing value from zero, this form has the plain value.
//
//	file, v1alpha1 ──► v1alpha1/ ──┐
//	file, v1alpha2 ──► v1alpha2/ ──┼─► KubeProxyConfiguration ──► validation/ ──► cmd/kube-proxy
//	flags ─────────────────────────┘
//
// configfile/ reads and writes files with line numbers, scheme/ contains the versions, explain/ the doc comments.
//
// +k8s:deepcopy-gen=package
// +groupName=kubeproxy.config.k8s.io
package config
