package config

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupName is the API group of all versions of the configuration.
const GroupName = "kubeproxy.config.k8s.io"

// Kind is the kind of a configuration file.
const Kind = "KubeProxyConfiguration"

// AddToScheme registers the internal type.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(schema.GroupVersion{Group: GroupName, Version: runtime.APIVersionInternal}, &KubeProxyConfiguration{})
	return nil
}
