// Package proxy is part of an example.
package proxy

import (
	_ "house.test/pkg/proxy/backend/nftables" // bad: a backend by name
	_ "house.test/pkg/proxy/health"           // bad: an observer by name
	_ "house.test/pkg/proxy/plan"
	_ "house.test/test/netns" // bad: a tool of the tests
)
