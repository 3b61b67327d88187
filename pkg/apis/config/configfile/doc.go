// Package configfile reads, writes and watches configuration files, and describes their fields.
//
// A file is decoded as Kubernetes decodes it (sigs.k8s.io/yaml and sigs.k8s.io/json). In addition it is parsed into a
// tree of YAML nodes with lines, so that all errors of a file are reported together, each with its line and the path of
// its field in the file's version.
package configfile
