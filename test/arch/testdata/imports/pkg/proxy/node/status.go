// Package node is part of an example.
package node
