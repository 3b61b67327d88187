// Package health tells the world around a node whether it can be sent traffic.
//
//   - Checker judges the proxy as a whole, and serves /healthz (for load balancers: should this node get
//     connections?) and /livez (for who may restart the process: does it still do its work?).
//   - Services serves the health check node port of every Service that has one: has this node endpoints of
//     that Service?
//
// Both are observers of the proxy's loop; see KEP-3836 for what the first two mean, and the API's
// spec.healthCheckNodePort for the third.
package health
