package iptables

import "github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt"

// Options are this backend's settings.
type Options struct {
	// Mark is the bit of the packet mark that requests masquerading.
	Mark uint32
	// Liberal means that the process sets tcpBeLiberal, perhaps after it has opened the backend.
	Liberal bool
}

// Settings are kernel settings, by their path below /proc/sys. A setting that the kernel lacks is an error.
type Settings interface {
	// Read returns a setting's value without the newline.
	Read(name string) (string, error)
	// Write sets a value.
	Write(name, value string) error
}

// The kernel settings that matter here.
const (
	// tcpBeLiberal makes conntrack accept TCP segments outside of their window as valid.
	tcpBeLiberal = "net/netfilter/nf_conntrack_tcp_be_liberal"
	// localnetRouted allows packets to 127.0.0.0/8 to be routed, which node ports on localhost need.
	localnetRouted = "net/ipv4/conf/all/route_localnet"
)

// capabilities are the properties of the machine that rules depend on, determined once.
type capabilities struct {
	// dropInvalid means that packets which conntrack considers invalid are dropped: it does not translate them, and an
	// endpoint's answer that leaves untranslated makes the client reset the connection (kubernetes/kubernetes#74839).
	// With tcpBeLiberal there are none.
	dropInvalid bool
	// chunk is the number of units in one transaction.
	chunk int
	// flat means that iptables cannot match the bits of an address by which trees branch: all rules for addresses are in
	// one chain, which takes a packet as long as the number of frontends.
	flat bool
}

// iptables-nft-restore takes time that grows with the square of a transaction's size, and writing without it is not
// faster in larger ones; the legacy variant replaces the whole table with each transaction (docs/decisions/0007 and 0021).
const (
	chunkNFT    = 256
	chunkLegacy = 1 << 20
)

// probe determines the capabilities.
func probe(features ipt.Features, opts Options, settings Settings) capabilities {
	c := capabilities{dropInvalid: !opts.Liberal, chunk: chunkLegacy, flat: !features.AddressBits}
	if features.Variant == ipt.NFT {
		c.chunk = chunkNFT
	}
	if liberal, err := settings.Read(tcpBeLiberal); err == nil && liberal != "0" {
		c.dropInvalid = false
	}
	return c
}
