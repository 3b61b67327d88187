package v1alpha2

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/config"
)

// Version is the name of this version.
const Version = "v1alpha2"

// GroupVersion is the value of apiVersion in a file.
func GroupVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: config.GroupName, Version: Version}
}

// localSchemeBuilder is used by the generated conversions, which register themselves with it.
var localSchemeBuilder runtime.SchemeBuilder

// AddToScheme registers the type, its defaults and its conversions.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion(), &KubeProxyConfiguration{})
	if err := RegisterDefaults(s); err != nil {
		return err
	}
	return localSchemeBuilder.AddToScheme(s)
}
