// Package validation validates a configuration. It returns all errors, with the paths of v1alpha2;
// a caller that has a file translates them to lines and to the file's version (configfile.File.Check).
package validation
