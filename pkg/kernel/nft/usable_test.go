package nft

import (
	"os"
	"strings"
	"testing"

	"sigs.k8s.io/knftables"
)

// TestNoProgram checks the errors if nft is not installed, is too old, or fails, of OpenUsable and of Run.
func TestNoProgram(t *testing.T) {
	table, err := Open(knftables.IPv4Family, testTable)
	if err != nil {
		t.Fatal(err)
	}
	defer table.Close()
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	const install = "install nftables 1.0.1 or later"
	for _, test := range []struct{ script, says, advises string }{
		{"", "could not find", install},
		{"#!/bin/sh\necho nftables v0.9.8", "got nftables v0.9.8", install},
		{"#!/bin/sh\necho Operation not permitted >&2; exit 1", "could not run", "CAP_NET_ADMIN"},
	} {
		if test.script != "" {
			if err := os.WriteFile(dir+"/nft", []byte(test.script), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		tx := table.NewTransaction()
		tx.Add(&knftables.Table{})
		_, opening := OpenUsable(knftables.IPv4Family, testTable)
		for when, err := range map[string]error{"Run": table.Run(t.Context(), tx), "OpenUsable": opening} {
			if err == nil || !strings.Contains(err.Error(), test.says) || !strings.Contains(err.Error(), test.advises) {
				t.Errorf("%s with %q: %v", when, test.script, err)
			}
		}
	}
}

func TestCheckRelease(t *testing.T) {
	for release, want := range map[string]string{
		"5.13.0":                 "",
		"5.13-rc1":               "",
		"6.1.0-18-amd64":         "",
		"10.0.0":                 "",
		"5.12.19":                "5.12.19 is older than 5.13",
		"4.18.0-553.el8.x86_64":  "4.18.0-553.el8.x86_64 is older than 5.13",
		"":                       "does not begin with a version",
		"bookworm":               "does not begin with a version",
		"5.4.0-150-generic":      anyKernel + "=1",
		"version 6.1 of a dream": anyKernel + "=1",
	} {
		switch err := checkRelease(release); {
		case want == "" && err != nil:
			t.Errorf("%q: %v", release, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%q: got %v, want %q", release, err, want)
		}
	}
}
