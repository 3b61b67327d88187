//go:build linux

package app

import (
	"os"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/host"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
)

// maxCounterBytes is the most memory of the counters of one family, unless --connection-counters sets what is counted.
const maxCounterBytes = 64 << 20

// limits returns the limits of the nftables mode. In iptables mode every rule counts.
func (l counterLevel) limits() backend.CounterLimits {
	for _, of := range []backend.Counting{backend.CountEndpoints, backend.CountServices, backend.CountNothing} {
		if l == level(of) {
			return backend.CounterLimits{Counting: of}
		}
	}
	return backend.CounterLimits{Most: nft.MaxCounters(maxCounterBytes, host.PossibleCPUs(os.DirFS("/sys")))}
}
