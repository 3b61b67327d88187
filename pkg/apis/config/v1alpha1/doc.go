// Package v1alpha1 contains the defaults and conversions of configuration version v1alpha1, whose Go types come from
// k8s.io/kube-proxy/config/v1alpha1, and the mapping between its field names and v1alpha2's.
//
// +k8s:conversion-gen=github.com/seed-11a05479/kube-proxy/pkg/apis/config
// +k8s:conversion-gen-external-types=k8s.io/kube-proxy/config/v1alpha1
// +k8s:defaulter-gen=TypeMeta
// +k8s:defaulter-gen-input=k8s.io/kube-proxy/config/v1alpha1
// +groupName=kubeproxy.config.k8s.io
package v1alpha1
