// Package tuning adjusts kernel settings and this process to their work: the limits and timeouts of connection tracking,
// the OOM score, and the memory limit.
//
// Services are served whether or not it succeeds: a node without these settings mostly works, one without rules does not. Kubernetes'
// kube-proxy exits, and nodes crash-loop on RHEL 10, where the files do not exist until the module is loaded (kops#17915). Here a
// setting that does not exist yet is written after the first sync, whose rules load the module; one that only the machine's first network
// namespace can change, as in kind, is logged. A larger limit, or number of buckets, stays: an administrator has set it.
package tuning
