//go:build linux

package main

import (
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/config"
	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// scenario is a section of docs/troubleshooting.md: with its objects, one packet fails as it says.
type scenario struct {
	section string
	// from and to are the packet's, want is what becomes of it. endpoint is the pod that answers instead of the right one.
	from, to string
	want     []netns.Verdict
	endpoint string
}

// scenarios are the sections with objects.
func scenarios() []scenario {
	refused := []netns.Verdict{netns.Refused}
	return []scenario{
		{"The port's name is misspelt", "pod1b", "10.96.0.10:80", refused, ""},
		{"The EndpointSlice is of a Service that does not exist", "pod1b", "10.96.0.10:80", refused, ""},
		{"No endpoint is ready", "pod1b", "10.96.0.10:80", refused, ""},
		{"The port is not one of the Service's", "node1", "10.96.0.10:8080", refused, ""},
		{"Only some addresses of the Service fail", "client", "192.0.2.10:80", []netns.Verdict{netns.Answered}, "pod1a"},
		{"externalTrafficPolicy is Local, and no endpoint is on this node", "client", "192.0.2.10:80", []netns.Verdict{netns.Dropped}, ""},
	}
}

// TestKernelTroubleshooting sends the packet of each section of docs/troubleshooting.md that has objects. The commands in
// it, which name the cause, are run by TestDocsTroubleshooting.
func TestKernelTroubleshooting(t *testing.T) {
	t.Parallel()
	archive, err := txtar.ParseFile("cli/testdata/troubleshooting.txtar")
	if err != nil {
		t.Fatal(err)
	}
	objects := map[string]string{}
	for _, file := range archive.Files {
		objects[file.Name] = string(file.Data)
	}
	w := newTrial(t)
	w.serve(w.lab.Node1.Pods[0], netns.TCP, 8080)
	w.proxy(config.ProxyModeNFTables, "--cluster-cidr=10.244.0.0/16")
	for _, s := range scenarios() {
		t.Run(s.section, func(t *testing.T) {
			w := *w
			w.T = t
			if objects[s.section] == "" {
				t.Fatal("the section has no objects")
			}
			w.programs(objects[s.section])
			from, err := w.lab.Host(s.from)
			if err != nil {
				t.Fatal(err)
			}
			probe := netns.Probe{From: from, To: netip.MustParseAddrPort(s.to)}
			if got := probe.Send(); !slices.Contains(s.want, got.Verdict) || got.Endpoint != s.endpoint {
				t.Errorf("%s: %s, want one of %s, endpoint %q", probe, got, s.want, s.endpoint)
			}
			delete(objects, s.section)
		})
	}
	for section := range objects {
		t.Errorf("no packet is sent for the objects of the section %q", section)
	}
}
