// Package config is the proxy's configuration: the types of its latest version, v1alpha2, their defaults and validation, what
// v1alpha1 means in it, and the files of both.
//
// Both file versions and the command line become a [KubeProxyConfiguration] with all defaults; nothing else in the program reads
// a configuration. The doc comments of its fields are the field reference (docs/config.md, "kube-proxy config explain").
//
//	file, v1alpha2 ──────────────┐
//	file, v1alpha1 ──┬► v1alpha1 ┼─► KubeProxyConfiguration ──► Validate ──► cmd/kube-proxy
//	flags ───────────┘
//
// v1alpha1 is flat and mixes settings of one instance, one platform or one backend with shared ones. In v1alpha2 each setting has
// one place; docs/config.md shows the place of each field of v1alpha1.
//
// An internal form beside both versions would need 1,500 generated lines to copy, default and convert, and differ from v1alpha2 only by
// plain values in place of pointers. So a file is decoded into the defaults, where a missing or null field keeps its default, and v1alpha1
// converts by hand; random round trips fail if a field is forgotten. When a next version comes, the type becomes that version, and
// v1alpha2 a file of conversions.
//
// A file is decoded as Kubernetes decodes it (sigs.k8s.io/yaml and sigs.k8s.io/json). In addition it is parsed into a tree of YAML nodes with
// lines, so that all errors of a file are reported together, each with its line and the path of its field in the file's version.
//
//	types.go, defaults.go, validation.go   v1alpha2
//	modes.go, migration.go, platform.go    what follows from a mode, and from leaving one; what a machine must have
//	v1alpha1*.go, flags.go                 the other version, and the command line
//	read.go, tree.go, manifest.go, ...     files: reading, writing and watching them
//	explain.go                             the reference of the fields
package config
