//go:build linux

package app

import (
	"fmt"

	"k8s.io/klog/v2"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/host"
)

// grants is the line of the DaemonSet that grants a capability.
const grants = "in a DaemonSet, securityContext.capabilities.add: [%s] of the container kube-proxy grants it"

// checkGrants checks the capabilities of this process before anything else fails without them. It returns an error if nothing
// can be served, and logs what may go wrong otherwise.
func (p *process) checkGrants(logger klog.Logger) error {
	held, err := host.Effective()
	if err != nil {
		logger.V(2).Info("Unknown capabilities", "reason", err.Error())
		return nil
	}
	if held&host.NetAdmin == 0 {
		return fmt.Errorf("CAP_NET_ADMIN is missing: without it no rule can be written; run as root, or "+grants, "NET_ADMIN")
	}
	if without := p.mode.WithoutRawSockets(); without != "" && held&host.NetRaw == 0 {
		logger.Error(nil, "CAP_NET_RAW is missing: "+without, "hint", fmt.Sprintf(grants, "NET_RAW"))
	}
	return nil
}
