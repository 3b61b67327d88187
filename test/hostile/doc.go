// Package hostile contains objects of an attacker who may write Services and EndpointSlices in one namespace, "mallory".
// An API server would reject some of them, and the proxy must not rely on that.
//
//	attacks.go      the objects
//	victim.txtar    Services of another namespace, and packets to them, which no attack may change
package hostile
