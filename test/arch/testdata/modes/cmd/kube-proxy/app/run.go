package app

import (
	"house.test/pkg/apis/config"
	"house.test/pkg/proxy/backend/nftables" // bad: only the table does
)

func run(mode config.ProxyMode) string {
	if mode == config.ProxyModeNFTables { // bad: a decision by mode
		return nftables.Name
	}
	if mode == "ipvs" { // bad: the same
		return "kube_ipvs_total" // bad: the name of a metric
	}
	return "no mode; use nftables" + table[mode]
}
