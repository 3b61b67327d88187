package v1alpha1

import (
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/validation/field"
	upstream "k8s.io/kube-proxy/config/v1alpha1"
)

// Validate checks the fields of this version that do not exist in the latest version.
func Validate(in *upstream.KubeProxyConfiguration) field.ErrorList {
	var errs field.ErrorList
	if _, err := utilnet.ParsePortRange(in.PortRange); err != nil {
		errs = append(errs, field.Invalid(field.NewPath("portRange"), in.PortRange, "must be a range of ports, such as 10000-20000"))
	}
	return errs
}
