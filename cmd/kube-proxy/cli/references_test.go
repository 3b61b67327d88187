package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/config"
	"github.com/seed-11a05479/kube-proxy/pkg/features"
	"github.com/seed-11a05479/kube-proxy/test/kubeproxy"
)

// TestReferences compares docs/config.md and docs/feature-gates.md with the fields and gates that there are; with -update it writes them.
func TestReferences(t *testing.T) {
	for name, want := range map[string]string{"config.md": fieldsMarkdown(), "feature-gates.md": gatesMarkdown()} {
		name = filepath.Join("..", "..", "..", "docs", name)
		if *update {
			kubeproxy.Must(os.WriteFile(name, []byte(want), 0o644))
		}
		if data, err := os.ReadFile(name); err != nil || string(data) != want {
			t.Errorf("%s is stale (%v): run make docs", name, err)
		}
	}
}

// fieldsMarkdown writes docs/config.md.
func fieldsMarkdown() string {
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
	for _, f := range config.Fields() {
		section, _, _ := strings.Cut(f.Path, ".")
		name := strings.TrimSpace(code(f.Path) + " " + code(flagFor(f.Path)))
		switch {
		case f.Type == "section":
			continue
		case slices.Contains([]string{"ipvs", "windows", "winkernel"}, section):
			ignored = append(ignored, name)
			continue
		case f.V1alpha1 == "":
			if !strings.Contains(f.Path, "[]") { // its list is named
				added = append(added, code(f.Path))
			}
		case f.V1alpha1 != f.Path && "linux."+f.V1alpha1 != f.Path: // the text below has those of linux
			moved = append(moved, code(f.V1alpha1)+" is "+code(f.Path))
		}
		text := strings.ReplaceAll(meaning(f), "|", `\|`)
		if first := described[f.Doc]; first != "" {
			text = "as " + code(first)
		} else {
			described[f.Doc] = f.Path
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", name, defaultOrType(f), text)
	}
	fmt.Fprintf(&b, "\nNo effect on what is served: %s. \"kube-proxy config explain\" describes them.\n", strings.Join(ignored, ", "))
	fmt.Fprintf(&b, "\nNames in v1alpha1: those of linux have no `linux.` before them; %s. It has none of %s.\n",
		strings.Join(moved, ", "), strings.Join(added, ", "))
	return b.String()
}

// defaultOrType returns the default, with that of v1alpha1 if it differs; the type of fields without one.
func defaultOrType(f config.Field) string {
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
func meaning(f config.Field) string {
	doc := strings.TrimPrefix(f.Doc, f.Path[strings.LastIndex(f.Path, ".")+1:]+" ")
	return strings.TrimPrefix(strings.TrimPrefix(doc, "is "), "are ")
}

func code(s string) string {
	if s == "" {
		return ""
	}
	return "`" + s + "`"
}

// gatesMarkdown writes docs/feature-gates.md.
func gatesMarkdown() string {
	var b strings.Builder
	b.WriteString(`# Feature gates

Generated from pkg/features; do not edit.

Set gates with featureGates in the configuration file, or with --feature-gates if there is no file. A gate that only Kubernetes has causes a
warning, an unknown one an error. /flagz of the metrics server shows the gates in force, "kube-proxy config feature-gates" their planned end.

| gate | stage | default | effect |
|---|---|---|---|
`)
	for _, gate := range features.Describe() {
		fmt.Fprintf(&b, "| %s | %s | %t | %s |\n", gate.Name, gate.Stage, gate.Default, gate.Effect)
	}
	fmt.Fprintf(&b, "\n## %s\n\n%s\n", features.ResetGoneEndpoints, resetDetails)
	return b.String()
}

// resetDetails describes what ResetGoneEndpoints does to each client.
const resetDetails = `An endpoint is gone when no EndpointSlice has listed its address for half a second: its pod or its node was deleted. Slices of headless Services
and of Services for other proxies (label service.kubernetes.io/service-proxy-name) do not count. The proxy then deletes the connection tracking entries of its
connections, so that their next packet is a new one. Without the gate these clients hang for about 15 minutes:

| a client | |
|---|---|
| sends, and other endpoints are left | another endpoint gets its packet, and resets the connection, from the Service's address |
| sends, and no endpoint is left | the node resets the connection |
| on this node, in the host's network (the kubelet) | gets ECONNABORTED at once, even if it only waits |
| elsewhere, and only waits | notices nothing until it sends: use TCP keepalive, pings of HTTP/2 and gRPC, or read timeouts |
| is still connecting | its next SYN goes to another endpoint, instead of to the gone one for 2 minutes |

The gate does not reset connections

* to an endpoint that is not ready or terminates, or whose removal --relist-guard holds back;
* of a deleted Service, or to endpoints that went while the proxy did not run;
* in iptables mode, to an address with traffic policy Local, when only other nodes have endpoints;
* of clients elsewhere, if net.netfilter.nf_conntrack_tcp_loose is 0 (the default is 1).

A running pod that no Service selects any more loses its connections. So does an API server that shuts down: it leaves the Service kubernetes
while it still answers its last requests. At most 10,000 connections are reset in a second. The metric
serviceproxy_connections_to_gone_endpoints_reset_total counts them, and the log has one line in 10 s. Without CONFIG_INET_DIAG_DESTROY or
CAP_NET_ADMIN the proxy logs that once, and resets the node's own clients at their next packet.

The proxy also deletes the entries of SCTP associations, even if the endpoint went while the proxy did not run. A client that starts again from the
same port (INIT) then reaches another endpoint; without the gate its packets go to the gone one as long as it sends any. If the pod still runs, its
association ends without notice to the client. With several addresses (multi-homing) only the path through the Service's address works.`
