// Package apiserver watches a Kubernetes API server: the Services and EndpointSlices that are for this proxy, this
// node's Node, and the ServiceCIDRs.
//
// client-go's Reflector lists, watches and retries after errors. Objects are converted to the Builder's values at once and
// then dropped: the Reflector gets lists without objects. Of an object in protobuf, only the fields that are read are decoded.
//
//   - With a server that streams lists (KEP-3157, on by default since 1.34), each object is decoded, converted
//     and dropped before the next one is read.
//   - With an older server, each page of a list is converted when it arrives. The first list has resourceVersion 0, so
//     that thousands of nodes that start at once are served from the server's cache and not from etcd; an older server
//     may answer it with a single page. That is the only case in which all objects are in memory at once, and only
//     while they are decoded.
//
// Objects in a list are therefore applied before the list ends. Objects that it lacks are removed at its end. Nothing is
// removed because the server is unreachable, has restarted or refuses to answer.
//
// # The guard
//
// A server that has lost its data, or has not loaded it yet, returns short or empty lists, and a proxy that applied them
// would cut every connection of a healthy cluster. A list that would remove more than 90 % of at least 100 known
// endpoints is therefore held back until a second list lacks the same objects, or until 60 seconds have passed. The
// first list after the start and deletions in a watch are not held back.
package apiserver
