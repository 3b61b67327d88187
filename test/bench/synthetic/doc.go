// Package synthetic is an API server whose cluster is made up by arithmetic: real HTTP, protobuf and JSON, lists in
// pages, watches and streaming lists (KEP-3157), for the resources that a service proxy reads.
//
// An object exists only while it is sent: what a Service or a slice looks like follows from its number. So a cluster
// of any size costs no memory but for what has been changed since the start, and sending it costs little CPU; next to none
// if it is encoded beforehand (Server.Prepare), which takes the memory.
//
// The objects are as large as real ones: they bear labels, annotations, owners and managed fields, which a reader has
// to skip.
package synthetic
