// Package v1alpha2 is the current version of the configuration file: its types, whose doc comments are the field
// reference (docs/config.md, "kube-proxy config explain"), its defaults and its conversions.
//
// v1alpha1 is flat and mixes settings of one instance, one platform or one backend with shared ones. Here each setting
// has one place; docs/config.md shows the place of each field of v1alpha1.
//
// +k8s:deepcopy-gen=package
// +k8s:conversion-gen=github.com/seed-11a05479/kube-proxy/pkg/apis/config
// +k8s:defaulter-gen=TypeMeta
// +groupName=kubeproxy.config.k8s.io
package v1alpha2
