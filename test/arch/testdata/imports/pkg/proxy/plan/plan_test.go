// Package plan is part of an example.
package plan

import (
	_ "house.test/pkg/proxy/cluster"
	_ "house.test/test/cases"
)
