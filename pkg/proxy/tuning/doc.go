// Package tuning adjusts kernel settings and this process to their work: the limits and timeouts of connection tracking,
// the OOM score, and the memory limit. Services are served whether or not it succeeds (docs/decisions/0009).
package tuning
