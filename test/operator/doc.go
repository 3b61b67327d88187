// Package operator has the questions of an operator on call: each scenario breaks something around a running kube-proxy, and one command
// names the cause.
package operator
