// Package config is part of an example.
package config

import (
	_ "k8s.io/component-base/config"
)
