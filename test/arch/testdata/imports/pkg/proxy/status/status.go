// Package status is part of an example.
package status
