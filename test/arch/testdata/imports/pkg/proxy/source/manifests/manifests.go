// Package manifests is part of an example.
package manifests

import (
	_ "house.test/pkg/apis/config" // bad: read in cmd only
	_ "house.test/pkg/proxy/cluster"
)
