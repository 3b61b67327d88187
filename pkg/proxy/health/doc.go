// Package health reports whether this node can be sent traffic.
//
//   - Checker reports the health of the proxy as a whole. It serves /healthz, which load balancers ask whether this node
//     should get connections, and /livez, which the kubelet asks whether to restart the process.
//   - Services serves the health check node port of every Service that has one. Load balancers ask there whether this
//     node has endpoints of that Service.
//
// Both are observers of the proxy's loop. See KEP-3836 for /healthz and /livez, and the API's spec.healthCheckNodePort.
package health
