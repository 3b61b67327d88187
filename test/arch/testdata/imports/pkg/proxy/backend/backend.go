// Package backend is part of an example.
package backend

import (
	_ "house.test/pkg/proxy/plan"
)
