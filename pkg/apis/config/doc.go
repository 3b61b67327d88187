// Package config is the proxy's configuration: the types of its latest version, v1alpha2, their defaults and
// validation.
//
// Both file versions and the command line become a [KubeProxyConfiguration] with all defaults; nothing else in the program reads
// a configuration (docs/decisions/0034). The doc comments of its fields are the field reference (docs/config.md, "kube-proxy
// config explain").
//
//	file, v1alpha2 ──────────────┐
//	file, v1alpha1 ──┬► v1alpha1/┼─► KubeProxyConfiguration ──► Validate ──► cmd/kube-proxy
//	flags ───────────┘
//
// v1alpha1 is flat and mixes settings of one instance, one platform or one backend with shared ones. In v1alpha2 each setting has
// one place; docs/config.md shows the place of each field of v1alpha1.
//
// configfile/ reads, writes and watches files, and describes the fields.
package config
