// Package manifests feeds the pipeline from a directory of files, without an API server.
//
// It reads every .yaml, .yml and .json file in the directory. It ignores subdirectories, hidden files and editors' backup
// files. A file contains any number of documents: Service (v1), EndpointSlice (discovery.k8s.io/v1), Node (v1),
// ServiceCIDR (networking.k8s.io/v1) and List (v1) of these. The directory is watched, and changes take effect at once.
//
// # Validation
//
// There is no API server that rejects invalid objects and no controller that allocates addresses, so an object is valid
// only if the proxy can do everything that it asks for. It is invalid if a field is unknown or duplicate, if it breaks a
// rule of the API that can be checked on the object alone, if it lacks what a controller would allocate (cluster IPs,
// node ports), or if the Builder would ignore a part of it. Errors contain the line.
//
// The valid objects of a file are used even if others are invalid. While a file has any error, none of its earlier
// objects is removed: the last valid version of an invalid object stays in use, and so does everything while a file is
// empty or unreadable, because a file that is being written looks like that. Removing a file removes its objects, and so
// does a file that contains only a comment.
//
// Objects of other kinds are ignored and logged, so that the directory may contain all manifests of an application.
//
// [Read] reads the same files leniently, to analyze them: it reports what would be invalid, and uses it.
//
// The plan resolves conflicts between Services over addresses and node ports. If several files contain an object of the
// same kind and name, the first file by name is used.
package manifests
