// Package config is part of an example.
package config

import (
	_ "house.test/pkg/features" // bad: the gates are read in cmd
)
