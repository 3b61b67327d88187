// Package config is part of an example.
package config

// ProxyMode is a mode.
type ProxyMode string

// ProxyModeNFTables may be named here: it is the API.
const ProxyModeNFTables ProxyMode = "nftables"
