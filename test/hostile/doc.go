// Package hostile contains objects as an attacker would write them who may write Services and EndpointSlices in one namespace,
// "mallory". Some of them, an API server would not accept: what a proxy does must not depend on that.
//
//	attacks.go      the objects
//	victim.txtar    Services of another namespace, and packets to them, which no attack may change
package hostile
