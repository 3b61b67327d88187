package nft

import "github.com/seed-11a05479/kube-proxy/pkg/kernel/internal/nftables"

// socket is a netlink socket to nf_tables.
type socket struct{ *nftables.Socket }

func openSocket() (*socket, error) {
	s, err := nftables.Open()
	if err != nil {
		return nil, err
	}
	return &socket{s}, nil
}
