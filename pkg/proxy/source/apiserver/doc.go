// Package apiserver feeds the pipeline from a Kubernetes API server: Services and EndpointSlices, as far as
// they are for this proxy, this node's Node, and the ServiceCIDRs.
//
// client-go's Reflector lists, watches, and comes back after errors. What it brings is turned into the
// Builder's values at once, and no object is kept: the Reflector's stores hold names only.
//
//   - With a server that streams lists (KEP-3157, on by default since 1.34), each object is decoded, converted
//     and dropped before the next one is read. The Reflector collects a stream in a temporary store; a
//     transformer converts each object before it gets there and leaves its name.
//   - With an older server, pages of a list are converted as they come, and again only names go on. The first
//     list asks for resourceVersion 0, so that thousands of nodes that start at once are served from the
//     server's memory and not from etcd; such a server may answer that with one page of everything. That is
//     the only case in which all objects are in memory at once, and only for the time of decoding.
//
// What a list adds or changes is therefore in force before its end. What it lacks is removed at the end, when
// everything has arrived. Nothing is ever removed because the server cannot be reached, has restarted, or
// refuses to answer.
//
// # The guard
//
// A server that has lost its data, or has not loaded it yet, gives lists that are short or empty, and a proxy
// that believes them cuts every connection of a healthy cluster. So a list that would take away more than
// 90 % of at least 100 known endpoints is believed only when a second list lacks the same objects, or when
// 60 seconds have passed. The first list after the start cannot take anything away, and an event of a watch
// says that somebody deleted an object; both are believed at once.
package apiserver
