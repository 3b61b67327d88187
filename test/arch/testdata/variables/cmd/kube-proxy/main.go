// Package main is part of an example.
package main

import "house.test/pkg/features"

func main() {
	features.Names[0] = "b" // bad: another package's
}
