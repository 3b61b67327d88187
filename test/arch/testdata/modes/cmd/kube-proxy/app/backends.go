// Package app is part of an example.
package app

import (
	"house.test/pkg/apis/config"
	"house.test/pkg/proxy/backend/nftables"
)

// table names modes.
var table = map[config.ProxyMode]string{config.ProxyModeNFTables: nftables.Name, "iptables": ""}
