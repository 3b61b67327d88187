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

// TestCompare finds a module without a row, a row without a reason, a row without a module, and one that is there twice.
func TestCompare(t *testing.T) {
	page := "| module | reason |\n|---|---|\n| `a.example/good` | it is needed |\n| `a.example/empty` |  |\n| `a.example/old` | it was needed |\n" +
		"| `a.example/good` | again |\n"
	got := compare([]string{"a.example/good", "a.example/empty", "a.example/new"}, page)
	want := []string{
		"docs/dependencies.md has a row for a.example/old, which go.mod does not require directly: remove it",
		"docs/dependencies.md has two rows for a.example/good",
		"go.mod requires a.example/new, and docs/dependencies.md has no row for it: add one with the reason, or do without it",
		"the row of a.example/empty in docs/dependencies.md gives no reason",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
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
