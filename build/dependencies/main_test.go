package main

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestRepository checks this repository.
func TestRepository(t *testing.T) {
	problems, err := check("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, problem := range problems {
		t.Error(problem)
	}
}

// TestUnexplained finds a module without a reason, in a block and alone.
func TestUnexplained(t *testing.T) {
	got := unexplained("module m\n\ngo 1.26.0\n\nrequire (\n\ta.example/good v1.0.0 // needed\n\ta.example/new v1.0.0\n\ta.example/other v1.0.0 // indirect\n)\n\nrequire a.example/alone v1.0.0\n")
	if len(got) != 2 || !strings.Contains(got[0], "a.example/new") || !strings.Contains(got[1], "a.example/alone") {
		t.Errorf("got %q", got)
	}
}

// TestLicence finds an allowed licence, one that is not allowed, also beside an allowed one, and none.
func TestLicence(t *testing.T) {
	own, err := os.ReadFile(filepath.Join("..", "..", "LICENSE"))
	if err != nil {
		t.Fatal(err)
	}
	const gpl = "This program is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License " +
		"as published by the Free Software Foundation, either version 3 of the License, or (at your option) any later version."
	for _, test := range []struct {
		files map[string]string
		want  string
	}{
		{map[string]string{"LICENSE": string(own)}, ""},
		{map[string]string{"licence.txt": string(own)}, ""},
		{map[string]string{"LICENSE": "do what you want"}, "no licence that is known"},
		{map[string]string{"README": string(own)}, "no licence that is known"},
		{map[string]string{"COPYING": gpl}, "GPL-3.0-or-later, which is not one of"},
		{map[string]string{"LICENSE": string(own), "LICENSE.GPL": gpl}, "GPL-3.0-or-later, which is not one of"},
	} {
		dir := t.TempDir()
		for name, content := range test.files {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		got := licenceProblem(module{Path: "a.example/m", Version: "v1.0.0", Dir: dir})
		if (got == "") != (test.want == "") || !strings.Contains(got, test.want) {
			t.Errorf("%v: %q, want %q", slices.Sorted(maps.Keys(test.files)), got, test.want)
		}
	}
}
