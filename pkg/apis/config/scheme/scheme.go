// Package scheme defines the versions of the configuration: the type of each apiVersion, its defaults, and the
// conversions to and from the internal form.
package scheme

import (
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/config"
	"github.com/seed-11a05479/kube-proxy/pkg/apis/config/v1alpha1"
	"github.com/seed-11a05479/kube-proxy/pkg/apis/config/v1alpha2"
)

// New returns a scheme with the internal form and every served version.
func New() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(config.AddToScheme(s))
	utilruntime.Must(v1alpha1.AddToScheme(s))
	utilruntime.Must(v1alpha2.AddToScheme(s))
	return s
}

// Versions returns the served versions, the latest first. Files are written in the latest by default.
func Versions() []string {
	return []string{v1alpha2.Version, v1alpha1.Version}
}
