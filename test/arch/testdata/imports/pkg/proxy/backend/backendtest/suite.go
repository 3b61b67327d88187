// Package backendtest is part of an example.
package backendtest

import (
	_ "house.test/pkg/proxy/backend"
	_ "house.test/test/netns"
)
