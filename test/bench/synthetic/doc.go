// Package synthetic is an API server with a computed cluster: real HTTP, protobuf and JSON, paged lists, watches and
// streaming lists (KEP-3157), for the resources that a service proxy reads.
//
// Objects are computed from their numbers while they are sent. So a cluster of any size needs memory only for what has
// changed since the start, and sending it needs little CPU, or almost none if it is encoded in advance (Server.Prepare),
// which needs the memory.
//
// The objects are as large as real ones: they have labels, annotations, owners and managed fields, which a reader must
// skip.
package synthetic
