// Package cases has tests only, and a comment.
package cases
