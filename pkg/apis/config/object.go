package config

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

const (
	// GroupName is the API group of all versions of the configuration.
	GroupName = "kubeproxy.config.k8s.io"
	// Version is the version of the types in this package, which is the latest.
	Version = "v1alpha2"
	// Kind is the kind of a configuration file.
	Kind = "KubeProxyConfiguration"
)

// typeMeta is what a file of this version begins with.
func typeMeta() metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: GroupName + "/" + Version, Kind: Kind}
}

// DeepCopyObject implements runtime.Object, which the page /configz requires. A file can express every configuration.
func (c *KubeProxyConfiguration) DeepCopyObject() runtime.Object {
	copied := &KubeProxyConfiguration{}
	if data, err := json.Marshal(c); err == nil {
		_ = json.Unmarshal(data, copied)
	}
	return copied
}
