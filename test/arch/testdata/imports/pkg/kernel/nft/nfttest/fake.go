// Package nfttest is part of an example.
package nfttest

import (
	_ "house.test/pkg/kernel/nft"
)
