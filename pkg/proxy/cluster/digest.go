package cluster

import (
	"encoding/binary"
	"hash/fnv"
	"net/netip"
)

// Digest returns a number that is equal on two nodes if their proxies know the same about a Service: its addresses, ports and policies,
// how connections are balanced and bounded, and all its endpoints with their conditions. It leaves out what each node sees differently
// (whether an endpoint is its own), what affects no packet (UID, creation time, triggers), and why an annotation cannot be read. If this
// function changes, proxies of different versions disagree.
func (s *Service) Digest() uint64 {
	d := digest{}
	d.text(s.Name.Namespace)
	d.text(s.Name.Name)
	for _, addrs := range [][]netip.Addr{s.ClusterIPs, s.LoadBalancerIPs(), s.Stray(), s.ExternalIPs()} {
		d.number(len(addrs))
		for _, addr := range addrs {
			d.addr(addr)
		}
	}
	ranges := s.SourceRanges()
	d.number(len(ranges))
	for _, of := range ranges {
		d.addr(of.Addr())
		d.number(of.Bits())
	}
	d.bytes = append(d.bytes, byte(s.InternalPolicy), byte(s.ExternalPolicy), b2i(s.PreserveUDP), byte(s.Algorithm), b2i(s.Ignored != ""))
	if s.Fence != nil {
		d.bytes = append(d.bytes, b2i(s.Fence.Ignored != ""))
		for _, b := range s.Fence.bounds() {
			d.number(int(*b.value))
		}
	}
	d.number(int(s.HealthCheckNodePort))
	d.number(int(s.Affinity))
	d.number(len(s.Ports))
	for _, port := range s.Ports {
		d.text(port.Name)
		d.bytes = append(d.bytes, byte(port.Protocol))
		d.number(int(port.Port))
		d.number(int(port.NodePort))
	}
	for _, slice := range s.Slices {
		d.slice(slice)
	}
	switch { // proxies of earlier versions agree about all other Services
	case s.FastPath == nil:
	case *s.FastPath:
		d.text(AnnotationFastPath)
	default:
		d.text(AnnotationFastPath + "=false")
	}
	hash := fnv.New64a()
	_, _ = hash.Write(d.bytes) // never fails
	return hash.Sum64()
}

// digest is the text that is hashed. Everything of variable length begins with its length.
type digest struct{ bytes []byte }

func (d *digest) number(n int)      { d.bytes = binary.AppendVarint(d.bytes, int64(n)) }
func (d *digest) text(s string)     { d.number(len(s)); d.bytes = append(d.bytes, s...) }
func (d *digest) addr(a netip.Addr) { d.text(string(a.AsSlice())) }

func (d *digest) slice(slice *EndpointSlice) {
	d.text(slice.Name)
	d.bytes = append(d.bytes, b2i(slice.Ignored != ""))
	d.number(len(slice.Ports))
	for _, port := range slice.Ports {
		d.text(port.Name)
		d.bytes = append(d.bytes, byte(port.Protocol))
		d.number(int(port.Port))
	}
	d.number(len(slice.Endpoints))
	for _, e := range slice.Endpoints {
		d.addr(e.Addr)
		d.bytes = append(d.bytes, byte(e.Conditions&^(Local|ThisNode)))
		d.number(int(e.Weight))
		zones := e.Zones.Names()
		d.number(len(zones))
		for _, zone := range zones {
			d.text(zone)
		}
	}
}

func b2i(b bool) byte {
	if b {
		return 1
	}
	return 0
}
