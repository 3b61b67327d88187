// Package restart tries kube-proxy as a whole in hard times: it is killed and started again, in the same mode or another,
// while connections are made and counted; it meets machines where something is missing or half done; and it cleans up
// after itself.
package restart
