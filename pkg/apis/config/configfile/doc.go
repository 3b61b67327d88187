// Package configfile reads and writes configuration files.
//
// A file is decoded as Kubernetes decodes it (sigs.k8s.io/yaml and sigs.k8s.io/json), and beside that walked through
// as a tree of YAML nodes, which knows lines: so every problem of a file is told at once, each with its line and the
// path of its field, as the file's own version names it.
package configfile
