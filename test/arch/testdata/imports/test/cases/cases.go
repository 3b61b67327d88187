// Package cases is part of an example.
package cases

import (
	_ "house.test/pkg/proxy/backend/iptables"
)
