// Package ipt is part of an example.
package ipt
