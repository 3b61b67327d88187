// Package config is the proxy's configuration: the types of its latest version, v1alpha2, their defaults and
// validation.
//
// Both file versions and the command line become a [KubeProxyConfiguration] with all defaults; nothing else in the program reads
// a configuration. The doc comments of its fields are the field reference (docs/config.md, "kube-proxy config explain").
//
//	file, v1alpha2 ──────────────┐
//	file, v1alpha1 ──┬► v1alpha1/┼─► KubeProxyConfiguration ──► Validate ──► cmd/kube-proxy
//	flags ───────────┘
//
// v1alpha1 is flat and mixes settings of one instance, one platform or one backend with shared ones. In v1alpha2 each setting has
// one place; docs/config.md shows the place of each field of v1alpha1.
//
// An internal form beside both versions would need 1,500 generated lines to copy, default and convert, and differ from v1alpha2 only by
// plain values in place of pointers. So a file is decoded into the defaults, where a missing or null field keeps its default, and v1alpha1
// converts by hand; random round trips fail if a field is forgotten. When a next version comes, the type becomes that version, and
// v1alpha2 a folder of conversions.
//
// configfile/ reads, writes and watches files, and describes the fields.
package config
