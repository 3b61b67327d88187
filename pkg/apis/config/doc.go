// Package config holds the internal form of the proxy's configuration.
//
// Both file versions and the command line end here, with every default filled in; nothing else in the program reads
// a configuration. The fields have the names and places of v1alpha2, whose doc comments tell their units, defaults
// and effects; where v1alpha2 has a pointer to tell "left out" from zero, this form has the plain value.
//
//	file, v1alpha1 ──► v1alpha1/ ──┐
//	file, v1alpha2 ──► v1alpha2/ ──┼─► KubeProxyConfiguration ──► validation/ ──► cmd/kube-proxy
//	flags ─────────────────────────┘
//
// configfile/ reads and writes files with line numbers, scheme/ knows the versions, explain/ the doc comments.
//
// +k8s:deepcopy-gen=package
// +groupName=kubeproxy.config.k8s.io
package config
