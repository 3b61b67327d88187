// Package v1alpha1 converts between configuration version v1alpha1 and the latest one. The Go types of v1alpha1 come from
// k8s.io/kube-proxy/config/v1alpha1. The package has their defaults, the mapping between the field names of both versions, and what
// one of them cannot express. The proxy's flags set fields of v1alpha1.
package v1alpha1

// Version is the name of this version.
const Version = "v1alpha1"
