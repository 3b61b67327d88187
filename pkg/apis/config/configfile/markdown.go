package configfile

import (
	"fmt"
	"slices"
	"strings"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/config"
)

// Markdown returns the whole reference. flag returns the flag that sets the field at a path, or "".
func Markdown(fields []Field, flag func(path string) string) string {
	var b strings.Builder
	fmt.Fprintf(&b, `# Configuration file

Generated from the doc comments of pkg/apis/config/types.go; do not edit.

A file begins with

    apiVersion: %s/%s
    kind: %s

and all fields are optional. Durations have a unit, such as 30s. With a file (--config), flags of fields are ignored except --hostname-override
and those for logging, which override it. Without a file the defaults are those of v1alpha1.

v1alpha1, which Kubernetes has, is read too; "kube-proxy config convert FILE" converts between both. v1alpha2 is what KEP-784 proposes, and only
this proxy reads it. If Kubernetes publishes another shape, files of this one will be rejected or converted, never read with another meaning.

If the file changes, in place or by a rename, and is valid, the proxy exits with 1, so that systemd starts it again; the rules stay in force.
After a change of a ConfigMap, restart the pods with "kubectl rollout restart". Until then, and while a file is invalid, the log, an Event on
the Node and the gauge serviceproxy_config_differs report it.

| field, flag | default, or type | meaning |
|---|---|---|
`, config.GroupName, config.Version, config.Kind)
	var ignored, moved, added []string
	described := map[string]string{} // the field with a description
	for _, f := range fields {
		section, _, _ := strings.Cut(f.Path, ".")
		name := strings.TrimSpace(code(f.Path) + " " + code(flag(f.Path)))
		switch {
		case f.Type == "section":
			continue
		case slices.Contains([]string{"ipvs", "windows", "winkernel"}, section):
			ignored = append(ignored, name)
			continue
		case f.V1alpha1 == "":
			added = append(added, code(f.Path))
		case f.V1alpha1 != f.Path && "linux."+f.V1alpha1 != f.Path: // the text below has those of linux
			moved = append(moved, code(f.V1alpha1)+" is "+code(f.Path))
		}
		text := strings.ReplaceAll(meaning(f), "|", `\|`)
		if first := described[f.Doc]; first != "" {
			text = "as " + code(first)
		} else {
			described[f.Doc] = f.Path
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", name, value(f), text)
	}
	fmt.Fprintf(&b, "\nNo effect on what is served: %s. \"kube-proxy config explain\" describes them.\n", strings.Join(ignored, ", "))
	fmt.Fprintf(&b, "\nNames in v1alpha1: those of linux have no `linux.` before them; %s. It does not have %s.\n",
		strings.Join(moved, ", "), strings.Join(added, " and "))
	return b.String()
}

// value returns the default, with that of v1alpha1 if it differs; the type of fields without one.
func value(f Field) string {
	switch {
	case f.Default == "":
		return f.Type
	case f.OldDefault == "":
		return code(f.Default)
	default:
		return fmt.Sprintf("%s (v1alpha1: %s)", code(f.Default), code(f.OldDefault))
	}
}

// meaning returns the description without the field's name at its beginning.
func meaning(f Field) string {
	doc := strings.TrimPrefix(f.Doc, f.Path[strings.LastIndex(f.Path, ".")+1:]+" ")
	return strings.TrimPrefix(strings.TrimPrefix(doc, "is "), "are ")
}

func code(s string) string {
	if s == "" {
		return ""
	}
	return "`" + s + "`"
}
