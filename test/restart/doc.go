// Package restart kills kube-proxy and starts it again, in the same mode or another, while connections are made, and
// counts those that fail; and has it clean up after itself.
package restart
