// Package nft is part of an example.
package nft

import (
	_ "house.test/pkg/proxy/cluster" // bad: a door knows nothing of ours
)
