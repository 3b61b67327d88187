package iptables

import (
	"cmp"
	"fmt"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// The table nat must not drop packets. So a chain of each Service with bounds accepts what exceeds them, before it is translated, and the
// filter table drops new connections that still have the Service's address.

// fence is the bounds of a Service's connections.
type fence struct {
	service cluster.ServiceName
	bounds  cluster.Fence
}

// Compare sorts by Service, then bounds.
func (f fence) Compare(o fence) int {
	return cmp.Or(f.service.Compare(o.service), cmp.Compare(f.bounds.PerSecond, o.bounds.PerSecond), cmp.Compare(f.bounds.Open, o.bounds.Open),
		cmp.Compare(f.bounds.ClientPerSecond, o.bounds.ClientPerSecond), cmp.Compare(f.bounds.ClientOpen, o.bounds.ClientOpen))
}

// chain returns the name of the chain, and of the kernel's list of the Service's rate. Other bounds have another.
func (f fence) chain() string {
	return prefixFirewall + hash(fmt.Sprint("limits of ", f.service, f.bounds))
}

// rules renders the chain. Rates come first, because the number of open connections takes the kernel a look at each of them. A client that
// exceeds its own rate uses up nothing of the Service's.
func (f fence) rules(addressBits int) (rules []ipt.Rule) {
	add := func(n uint32, above ipt.Match) {
		if n > 0 {
			rules = append(rules, rule(ipt.Accept, comment(f.service.String()+" limits"), above))
		}
	}
	add(f.bounds.ClientPerSecond, ipt.RateAbove{List: f.chain() + "-CLIENT", PerSecond: f.bounds.ClientPerSecond, Clients: cluster.MaxClients})
	add(f.bounds.PerSecond, ipt.RateAbove{List: f.chain(), PerSecond: f.bounds.PerSecond})
	add(f.bounds.ClientOpen, ipt.OpenAbove{Open: f.bounds.ClientOpen, Bits: addressBits})
	add(f.bounds.Open, ipt.OpenAbove{Open: f.bounds.Open})
	return rules
}
