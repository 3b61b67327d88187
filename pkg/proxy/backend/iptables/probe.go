package iptables

import (
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt"
)

// Options are the settings that this backend alone understands.
type Options struct {
	// Mark is the packet mark bit that says "masquerade this".
	Mark uint32
}

// Settings are the kernel's, by their path below /proc/sys. A setting that the kernel lacks is an error.
type Settings interface {
	// Read gives a setting's value without the newline.
	Read(name string) (string, error)
	// Write sets a value.
	Write(name, value string) error
}

// The kernel settings that matter here.
const (
	// tcpBeLiberal makes conntrack take TCP segments outside of their window for valid.
	tcpBeLiberal = "net/netfilter/nf_conntrack_tcp_be_liberal"
	// localnetRouted lets packets to 127.0.0.0/8 be routed, which node ports on localhost need.
	localnetRouted = "net/ipv4/conf/all/route_localnet"
)

// capabilities are what was found out about the machine, once, and how rules differ by it.
type capabilities struct {
	// randomFully tells that MASQUERADE can draw source ports at random.
	randomFully bool
	// dropInvalid asks for packets to be dropped that conntrack takes for invalid: it does not translate them, and an
	// endpoint's answer that gets out untranslated makes the client reset the connection (issue 74839 of Kubernetes).
	// Where TCP is taken liberally there are none.
	dropInvalid bool
	// chunk is how many units of work go into one transaction.
	chunk int
}

// The nft variant takes time that grows with the square of a transaction's size; the legacy variant replaces the whole
// table with each transaction (docs/decisions tell the measurements).
const (
	chunkNFT    = 256
	chunkLegacy = 1 << 20
)

// probe finds out the capabilities.
func probe(features ipt.Features, settings Settings) capabilities {
	c := capabilities{randomFully: features.RandomFully, dropInvalid: true, chunk: chunkLegacy}
	if features.Variant == ipt.NFT {
		c.chunk = chunkNFT
	}
	if liberal, err := settings.Read(tcpBeLiberal); err == nil && liberal != "0" {
		c.dropInvalid = false
	}
	return c
}
