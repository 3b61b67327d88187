// Package apiserver watches a Kubernetes API server: the Services and EndpointSlices that are for this proxy, this
// node's Node, and the ServiceCIDRs.
//
// client-go's Reflector lists, watches and retries after errors. Objects are converted to the Builder's values at once and
// then dropped: the Reflector gets lists without objects. Of an object in protobuf, only the fields that are read are decoded.
//
//   - With a server that streams lists (KEP-3157, on by default since 1.34), each object is decoded, converted
//     and dropped before the next one is read.
//   - With an older server, each page of a list is read in the same way. The first list has resourceVersion 0, so that thousands of
//     nodes that start at once are served from the server's cache and not from etcd; an older server may answer it with a single
//     page. That is no more in memory at once than another one.
//
// Objects in a list are therefore applied before the list ends. Objects that it lacks are removed at its end. Nothing is
// removed because the server is unreachable, has restarted or refuses to answer.
//
// # Limits
//
// An answer may have any number of objects, up to 4 GiB in total, but only one object is in memory, of at most 8 MiB. A list, and an
// object in a watch, have to make progress: 32 kB in 30 s, which is 1 kB/s. A watch may be silent, until it has lasted as long as
// requested. What breaks these limits is given up, logged, and requested again; what is known stays in force. Requests that fail are
// sent again after 10 s at most, whatever the server asks for, so that 15 s after the end of an outage the state is right.
//
// # The guard
//
// A server that has lost its data, or has not loaded it yet, returns short or empty lists, and a proxy that applied them
// would cut every connection of a healthy cluster. A list that would remove more than 90 % of at least 100 known
// endpoints is therefore held back until a second list lacks the same objects, or until 60 seconds have passed. The
// first list after the start and deletions in a watch are not held back.
package apiserver
