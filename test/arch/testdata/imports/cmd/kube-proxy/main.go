// Package main is part of an example.
package main

import (
	_ "house.test/pkg/apis/config"
	_ "house.test/pkg/features"
	_ "house.test/pkg/kernel/nft"
	_ "house.test/pkg/proxy"
	_ "house.test/pkg/proxy/backend/nftables" // bad: only the table of modes does
	_ "house.test/pkg/proxy/source/manifests"
	_ "house.test/test/netns" // bad: a tool of the tests
)
