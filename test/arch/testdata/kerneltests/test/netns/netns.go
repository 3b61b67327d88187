// Package netns is part of an example.
package netns
