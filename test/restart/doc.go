// Package restart kills kube-proxy at random moments while connections are made, and counts those that fail.
package restart
