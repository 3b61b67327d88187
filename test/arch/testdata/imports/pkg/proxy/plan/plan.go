// Package plan is part of an example.
package plan

import (
	_ "house.test/pkg/features" // bad: the plan takes options
	_ "house.test/pkg/proxy/cluster"
)
