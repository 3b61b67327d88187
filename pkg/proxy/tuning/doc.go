// Package tuning adjusts kernel settings and this process to their work: the limits and timeouts of connection tracking,
// the OOM score, the memory limit, and the garbage collector during a cold start. Services are served whether or not it succeeds
// (docs/decisions/0009).
package tuning
