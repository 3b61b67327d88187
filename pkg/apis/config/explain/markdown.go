package explain

import (
	"fmt"
	"slices"
	"strings"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/config"
	"github.com/seed-11a05479/kube-proxy/pkg/apis/config/v1alpha2"
)

// Markdown returns the whole reference. flag returns the flag that sets the field at a path, or "".
func Markdown(fields []Field, flag func(path string) string) string {
	var b strings.Builder
	fmt.Fprintf(&b, `# Configuration file

Generated from the doc comments of pkg/apis/config/v1alpha2/types.go; do not edit.

A file begins with

    apiVersion: %s/%s
    kind: %s

and all fields are optional. v1alpha1 is supported too; "kube-proxy config convert --from FILE" converts it to this version.
Durations are written with their unit, such as 30s or 1h30m. With a file (--config), all flags are ignored except
--hostname-override and the flags for logging, which override the file. Without a file the defaults are those of v1alpha1.

The file may be a pipe, such as a shell's <(command), whose writer is running. It is read once, and not watched.

The proxy watches the file. If the file is written in place or replaced by a rename, and its configuration is valid and
differs, the process ends with exit code 1, so that systemd's Restart=on-failure restarts it with the new configuration; the
rules stay in force meanwhile. A change of a ConfigMap does not end the process, because the kubelet swaps the file on all
nodes at about the same time: restart the pods, node by node, with "kubectl rollout restart". Until then, and while a file
is invalid, the log and an Event on the Node report it, and the gauge serviceproxy_config_differs is 1.
`, config.GroupName, v1alpha2.Version, config.Kind)

	for _, section := range sections(fields) {
		heading := "The root"
		if section != "" {
			heading = section
		}
		fmt.Fprintf(&b, "\n## %s\n\n| field | type | default | flag | in v1alpha1 | meaning |\n|---|---|---|---|---|---|\n", heading)
		for _, f := range fields {
			if sectionOf(f) == section {
				fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s | %s |\n", f.Path, f.Type, defaults(f), code(flag(f.Path)), oldPlace(f), escape(f.Doc))
			}
		}
	}
	return b.String()
}

// sections returns the sections with fields, the root ("") first.
func sections(fields []Field) []string {
	var all []string
	for _, f := range fields {
		if s := sectionOf(f); !slices.Contains(all, s) {
			all = append(all, s)
		}
	}
	return all
}

// sectionOf returns the section of a field.
func sectionOf(f Field) string {
	return f.Path[:max(strings.LastIndex(f.Path, "."), 0)]
}

// defaults returns the default, and that of v1alpha1 if it differs.
func defaults(f Field) string {
	if f.OldDefault == "" {
		return code(f.Default)
	}
	return fmt.Sprintf("%s (%s in v1alpha1 and without a file)", code(f.Default), code(f.OldDefault))
}

// oldPlace describes where the field is in v1alpha1.
func oldPlace(f Field) string {
	switch f.V1alpha1 {
	case f.Path:
		return "same"
	case "":
		return "-"
	default:
		return code(f.V1alpha1)
	}
}

func code(s string) string {
	if s == "" {
		return ""
	}
	return "`" + s + "`"
}

// escape escapes text for a cell of a table.
func escape(s string) string { return strings.ReplaceAll(s, "|", `\|`) }
