// Command dependencies checks the modules that the programs of cmd/ are made of: each has a licence that is allowed. Each one that go.mod
// requires directly has a comment there that says why.
//
// It prints what is wrong, one problem a line, and exits with 1 if there is any.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/google/licensecheck"
)

// platforms are the platforms that programs are released for.
var platforms = []string{"linux", "darwin", "windows"}

// allowed are the licences, by SPDX identifier, that a program under the Apache License 2.0 may contain.
var allowed = []string{"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT"}

// module is what the go command prints about a module.
type module struct {
	Path, Version, Dir string
	Main               bool
}

func main() {
	root := flag.String("root", ".", "the repository")
	flag.Parse()
	problems, err := check(*root)
	if err != nil {
		fmt.Fprintln(os.Stderr, "dependencies:", err)
		os.Exit(2)
	}
	for _, problem := range problems {
		fmt.Println(problem)
	}
	if len(problems) > 0 {
		os.Exit(1)
	}
}

// check returns the problems of a repository, sorted.
func check(root string) ([]string, error) {
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		return nil, err
	}
	problems := unexplained(string(mod))
	linked, err := linkedModules(root)
	if err != nil {
		return nil, err
	}
	for _, m := range linked {
		if problem := licenceProblem(m); problem != "" {
			problems = append(problems, problem)
		}
	}
	slices.Sort(problems)
	return problems, nil
}

// unexplained returns the lines of a go.mod that require a module and do not say why, or that another module requires it.
func unexplained(mod string) (problems []string) {
	for _, line := range regexp.MustCompile(`(?m)^(?:require |\t)\S+ v\S+$`).FindAllString(mod, -1) {
		problems = append(problems, fmt.Sprintf("go.mod: %s: add a comment with the reason, or do without it", strings.TrimSpace(line)))
	}
	return problems
}

// linkedModules returns the modules whose packages are in the programs of cmd/ on any platform, sorted by path.
func linkedModules(root string) ([]module, error) {
	all := map[string]module{}
	for _, platform := range platforms {
		packages, err := list[struct{ Module *module }](root, "-deps", "./cmd/...", "GOOS="+platform)
		if err != nil {
			return nil, err
		}
		for _, p := range packages {
			if m := p.Module; m != nil && !m.Main {
				all[m.Path] = *m
			}
		}
	}
	if len(all) == 0 {
		return nil, errors.New("go list found no module of the programs of cmd/, although they use several")
	}
	return slices.SortedFunc(maps.Values(all), func(a, b module) int { return strings.Compare(a.Path, b.Path) }), nil
}

// list runs "go list -json". Arguments that contain "=" are added to its environment.
func list[T any](root string, args ...string) ([]T, error) {
	command := exec.Command("go", "list", "-json")
	command.Dir, command.Env, command.Stderr = root, os.Environ(), os.Stderr
	for _, arg := range args {
		if strings.Contains(arg, "=") {
			command.Env = append(command.Env, arg)
		} else {
			command.Args = append(command.Args, arg)
		}
	}
	out, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", strings.Join(command.Args, " "), err)
	}
	var all []T
	for decoder := json.NewDecoder(strings.NewReader(string(out))); ; {
		var one T
		if err := decoder.Decode(&one); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, fmt.Errorf("%s: %w", strings.Join(command.Args, " "), err)
		}
		all = append(all, one)
	}
}

// licenceProblem returns what is wrong with the licence of a module; "" if it is allowed.
func licenceProblem(m module) string {
	names, err := filepath.Glob(filepath.Join(m.Dir, "*"))
	if err != nil {
		return err.Error()
	}
	var found []string
	for _, name := range names {
		base := strings.ToUpper(filepath.Base(name))
		if !strings.HasPrefix(base, "LICEN") && !strings.HasPrefix(base, "COPYING") {
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return fmt.Sprintf("%s: %v", m.Path, err)
		}
		for _, match := range licensecheck.Scan(text).Match {
			found = append(found, match.ID)
		}
	}
	slices.Sort(found)
	found = slices.Compact(found)
	if len(found) == 0 {
		return fmt.Sprintf("%s %s has no licence that is known", m.Path, m.Version)
	}
	for _, id := range found {
		if !slices.Contains(allowed, id) {
			return fmt.Sprintf("%s %s is under the licence %s, which is not one of %s", m.Path, m.Version, id, strings.Join(allowed, ", "))
		}
	}
	return ""
}
