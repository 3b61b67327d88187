package explain

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

and all fields are optional. v1alpha1 is supported too; "kube-proxy config convert FILE" converts between both. Durations have a unit, such as
30s or 1h30m. With a file (--config), all flags are ignored except --hostname-override and the flags for logging, which override the
file. Without a file the defaults are those of v1alpha1.

Kubernetes has not published v1alpha2: it has the shape that KEP-784 proposes, and only this proxy reads it. If Kubernetes publishes another
shape, files of this one will be rejected with an error or converted, never read with another meaning. Keep v1alpha1 where other programs read
the file.

The proxy watches the file. If it is written in place or replaced by a rename, and is valid and different, the process ends with exit code 1, so
that systemd restarts it; the rules stay in force. A change of a ConfigMap does not end the process: restart the pods with "kubectl
rollout restart". Until then, and while a file is invalid, the log, an Event on the Node and the gauge serviceproxy_config_differs report it.
A pipe, such as a shell's <(command), is read once and not watched.
`, config.GroupName, config.Version, config.Kind)

	for _, section := range sections(fields) {
		heading := "The root"
		if section != "" {
			heading = section
		}
		if slices.Contains([]string{"ipvs", "windows", "winkernel"}, section) {
			fmt.Fprintf(&b, "\n## %s\n\nWithout effect on what is served; \"kube-proxy config explain\" describes them: %s.\n",
				section, strings.Join(names(fields, section, flag), ", "))
			continue
		}
		fmt.Fprintf(&b, "\n## %s\n\n| field | type | default | flag | elsewhere in v1alpha1 | meaning |\n|---|---|---|---|---|---|\n", heading)
		for _, f := range fields {
			if sectionOf(f) == section {
				fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s | %s |\n", f.Path, f.Type, defaults(f), code(flag(f.Path)), oldPlace(f), escape(meaning(f)))
			}
		}
	}
	return b.String()
}

// names returns the fields of a section with their flags.
func names(fields []Field, section string, flag func(path string) string) (all []string) {
	for _, f := range fields {
		if sectionOf(f) != section {
			continue
		}
		name := code(f.Path)
		if given := flag(f.Path); given != "" {
			name += " (" + code(given) + ")"
		}
		all = append(all, name)
	}
	return all
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

// meaning returns the description without the field's name at its beginning.
func meaning(f Field) string {
	doc := strings.TrimPrefix(f.Doc, f.Path[strings.LastIndex(f.Path, ".")+1:]+" ")
	return strings.TrimPrefix(strings.TrimPrefix(doc, "is "), "are ")
}

// oldPlace describes where the field is in v1alpha1, if not in the same place.
func oldPlace(f Field) string {
	switch f.V1alpha1 {
	case f.Path:
		return ""
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
