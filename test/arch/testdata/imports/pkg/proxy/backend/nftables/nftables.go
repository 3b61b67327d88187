// Package nftables is part of an example.
package nftables

import (
	_ "house.test/pkg/kernel/ipt" // bad: the other backend's door
	_ "house.test/pkg/kernel/nft"
	_ "house.test/pkg/kernel/nft/nfttest"     // bad: a fake in the program
	_ "house.test/pkg/proxy/backend/iptables" // bad: the other backend
	_ "house.test/pkg/proxy/plan"
)
