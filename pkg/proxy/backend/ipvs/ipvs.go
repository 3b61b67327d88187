// Package ipvs removes what Kubernetes' kube-proxy leaves behind in ipvs mode, which this proxy does not have: virtual
// servers, IP sets, and a dummy device with the addresses of all Services. Its chains are removed by the iptables backend.
// Established connections keep what they use (docs/decisions/0037).
package ipvs

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipvs"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// device has the addresses of all Services.
const device = "kube-ipvs0"

// The prefixes of set names, for IPv4 and IPv6.
const (
	prefix     = "KUBE-"
	prefixIPv6 = "KUBE-6-"
)

// Protocol numbers of /etc/protocols.
const (
	tcp  = 6
	udp  = 17
	sctp = 132
)

// The kernel releases the set of a deleted rule a moment later. busyPause is the time between attempts to delete a set
// that is in use, busyPatience the limit.
const (
	busyPause    = 50 * time.Millisecond
	busyPatience = 3 * time.Second
)

// sets returns the names of kube-proxy's sets, without their prefix.
func sets() []string {
	return []string{
		"LOOP-BACK", "CLUSTER-IP", "EXTERNAL-IP", "EXTERNAL-IP-LOCAL", "LOAD-BALANCER", "LOAD-BALANCER-FW", "LOAD-BALANCER-LOCAL",
		"LOAD-BALANCER-SOURCE-CIDR", "LOAD-BALANCER-SOURCE-IP", "NODE-PORT-TCP", "NODE-PORT-UDP", "NODE-PORT-SCTP-HASH",
		"NODE-PORT-LOCAL-TCP", "NODE-PORT-LOCAL-UDP", "NODE-PORT-LOCAL-SCTP-HASH", "HEALTH-CHECK-NODE-PORT", "IPVS-IPS",
	}
}

// maxName is the length of a set's name in the kernel. kube-proxy cuts longer ones.
const maxName = 31

// short returns the name of a set without its prefix; ok is false unless it is one of kube-proxy's.
func short(name string) (text string, ok bool) {
	for _, set := range sets() {
		for _, full := range []string{prefix + set, prefixIPv6 + set} {
			if name == full[:min(len(full), maxName)] {
				return set, true
			}
		}
	}
	return "", false
}

// Mode is ipvs mode, for cleanup only.
type Mode struct {
	Objects ipvs.Objects
	// ExcludeCIDRs are the ranges whose virtual servers are kept (ipvs.excludeCIDRs).
	ExcludeCIDRs []string
}

var _ backend.Remover = Mode{}

// Remove implements [backend.Remover]. The chains must be removed before, because their rules use the sets. The device has the
// addresses of both families, so nothing is removed in one family alone.
func (m Mode) Remove(ctx context.Context, families ...cluster.Family) error {
	if len(families) == 1 {
		return nil
	}
	found, err := m.look()
	if err != nil {
		return err
	}
	return m.removeAll(ctx, found)
}

// leftovers are what ipvs mode left.
type leftovers struct {
	servers []ipvs.Server
	sets    []ipvs.Set
	// device reports whether the device exists. addrs are its addresses, elsewhere those of all other devices.
	device           bool
	addrs, elsewhere []netip.Addr
}

func (m Mode) look() (found leftovers, err error) {
	if found.sets, err = m.Objects.Sets(func(name string) bool { _, ours := short(name); return ours }); err != nil {
		return found, err
	}
	if found.addrs, found.device, err = m.Objects.Device(device); err != nil {
		return found, err
	}
	if found.elsewhere, err = m.Objects.Elsewhere(device); err != nil {
		return found, err
	}
	found.servers, err = m.servers(found)
	return found, err
}

// removeAll removes what was found. The sets and the device identify kube-proxy's virtual servers, so they are removed last.
func (m Mode) removeAll(ctx context.Context, found leftovers) error {
	var failed []error
	for _, s := range found.servers {
		failed = append(failed, m.Objects.DeleteServer(s))
	}
	if err := errors.Join(failed...); err != nil {
		return err
	}
	for _, set := range found.sets {
		failed = append(failed, deleteSet(ctx, m.Objects, set.Name))
	}
	if found.device {
		failed = append(failed, m.Objects.DeleteDevice(device))
	}
	return errors.Join(append(failed, m.Objects.DeleteRoutes(nil))...)
}

// Present implements [backend.Remover]: it reports whether the device of ipvs mode exists, which has addresses of both
// families.
func (m Mode) Present(_ context.Context, families ...cluster.Family) (bool, error) {
	if len(families) == 1 {
		return false, nil
	}
	_, exists, err := m.Objects.Device(device)
	return exists, err
}

// servers returns kube-proxy's virtual servers: those on an address of its device, and those on this machine's addresses with a node
// port in its sets. Others may belong to a load balancer on the same machine.
func (m Mode) servers(found leftovers) ([]ipvs.Server, error) {
	servers, err := m.Objects.Servers()
	if err != nil || len(servers) == 0 {
		return nil, err
	}
	excluded, err := cluster.ParsePrefixes(m.ExcludeCIDRs)
	if err != nil { // a configuration for another mode may have any
		return nil, fmt.Errorf("ipvs.excludeCIDRs: %w", err)
	}
	ports := nodePorts(found.sets)
	return slices.DeleteFunc(servers, func(s ipvs.Server) bool {
		nodePort := ports[port{s.Protocol, s.Addr.Port()}] && slices.Contains(found.elsewhere, s.Addr.Addr())
		return !nodePort && !slices.Contains(found.addrs, s.Addr.Addr()) ||
			slices.ContainsFunc(excluded, func(p netip.Prefix) bool { return p.Contains(s.Addr.Addr()) })
	}), nil
}

// port is a port of a transport protocol.
type port struct {
	protocol uint8
	number   uint16
}

// nodePorts returns the node ports in the sets. Entries for TCP and UDP have no address.
func nodePorts(sets []ipvs.Set) map[port]bool {
	ports := map[port]bool{}
	for _, set := range sets {
		name, _ := short(set.Name)
		protocol, ok := map[string]uint8{"NODE-PORT-TCP": tcp, "NODE-PORT-UDP": udp, "NODE-PORT-SCTP-HASH": sctp}[name]
		if !ok {
			continue
		}
		for _, number := range set.Ports {
			ports[port{protocol, number}] = true
		}
	}
	return ports
}

// deleteSet deletes a set as soon as no rule uses it.
func deleteSet(ctx context.Context, objects ipvs.Objects, name string) error {
	err := objects.DeleteSet(name)
	for deadline := time.Now().Add(busyPatience); errors.Is(err, ipvs.ErrBusy) && ctx.Err() == nil && time.Now().Before(deadline); {
		time.Sleep(busyPause)
		err = objects.DeleteSet(name)
	}
	return err
}
