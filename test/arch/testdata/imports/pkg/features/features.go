// Package features is part of an example.
package features
