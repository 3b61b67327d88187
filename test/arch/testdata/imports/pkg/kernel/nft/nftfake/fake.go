// Package nftfake is part of an example.
package nftfake

import (
	_ "house.test/pkg/kernel/nft"
)
