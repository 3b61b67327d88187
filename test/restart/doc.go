// Package restart tests the kube-proxy binary in difficult situations: it is killed and started again, in the same or
// another mode, while connections are opened and counted; it runs on machines with missing tools or partial rules; and it
// cleans up.
package restart
