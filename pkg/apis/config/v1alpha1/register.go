package v1alpha1

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kube-proxy/config/v1alpha1"
)

// Version is the name of this version.
const Version = "v1alpha1"

// localSchemeBuilder is used by the generated conversions, which register themselves with it.
var localSchemeBuilder runtime.SchemeBuilder

// AddToScheme registers the type, its defaults and its conversions.
func AddToScheme(s *runtime.Scheme) error {
	if err := v1alpha1.AddToScheme(s); err != nil {
		return err
	}
	if err := RegisterDefaults(s); err != nil {
		return err
	}
	return localSchemeBuilder.AddToScheme(s)
}
