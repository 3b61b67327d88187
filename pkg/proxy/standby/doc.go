// Package standby lets only one proxy at a time write the rules of a network namespace (docs/decisions/0018). Another one
// waits, with its caches filled, and takes over when the first one ends.
package standby
