//go:build linux

package main

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	source "github.com/seed-11a05479/kube-proxy/pkg/proxy/source/manifests"
)

func TestScreen(t *testing.T) {
	var out strings.Builder
	s := &screen{out: &out}
	s.line("%s, %s, %s and %s, without trailing spaces  ", s.bold("bold"), s.faint("faint"), s.good("good"), s.bad("bad"))
	s.colour = true
	s.line("%s", s.good("green"))
	if want := "bold, faint, good and bad, without trailing spaces\n\x1b[1;32mgreen\x1b[0m\n"; out.String() != want {
		t.Errorf("printed %q, not %q", out.String(), want)
	}
}

// TestNoColour checks that a file that is not a terminal gets no colours.
func TestNoColour(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if newScreen(file).colour {
		t.Error("colours in a file")
	}
}

func TestTable(t *testing.T) {
	got := []string{
		row{counts: []string{"pod1a", "pod1b"}, seen: "source address"}.String(),
		row{from: "client", way: "TCP load balancer", to: "192.0.2.80:80", counts: []string{count(26), count(0)}, seen: "node1"}.String(),
		row{to: "[fd00:172:18::b]:30443", outcome: "all dropped"}.String(),
		effect("cart moves", milliseconds(5123*time.Microsecond), times{3e6, 1e6, 4e6}.note()),
		effect("in the kernel", "", contents{chains: 1, rules: 23, elements: 45678}.String()),
		indent(commandLine("kube-proxy", []string{"--one", "1", "--" + strings.Repeat("t", 75), "2", "--three", "3"})),
	}
	want := []string{
		"                                                     pod1a pod1b  source address",
		"  client  TCP load balancer  192.0.2.80:80              26     ·  node1",
		"                             [fd00:172:18::b]:30443   all dropped",
		"  cart moves                                              5.1 ms  median of 3, from 1.0 ms to 4.0 ms",
		"  in the kernel                                                   1 chains, 23 rules, 45,678 elements",
		"  kube-proxy --one 1 \\\n      --" + strings.Repeat("t", 75) + " 2 \\\n      --three 3",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("output differs (-want +got):\n%s", diff)
	}
}

func TestThousands(t *testing.T) {
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", 123456: "123,456", 1234567: "1,234,567"} {
		if got := thousands(n); got != want {
			t.Errorf("%d is written %q, not %q", n, got, want)
		}
	}
}

func TestMedian(t *testing.T) {
	odd := times{5, 1, 3}
	if got := odd.median(); got != 3 || !slices.Equal(odd, times{5, 1, 3}) {
		t.Errorf("the median of 5, 1, 3 is %d, and the slice is now %v", got, odd)
	}
}

// TestFair checks that even choices are fair, with many more attempts than the demo makes; and that a pod that is left
// out, or gets half or twice its share in the long run, is not.
func TestFair(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		var counts [4]int
		for range 100 {
			counts[random.IntN(len(counts))]++
		}
		for _, n := range counts {
			if !fair(n, 100, 4) {
				t.Fatalf("an even choice is not fair: %v", counts)
			}
		}
	}
	for _, c := range []struct {
		n, all, among int
		fair          bool
	}{
		{100, 100, 1, true}, {99, 100, 1, false}, {0, 100, 4, false}, {0, 100, 2, false}, {100, 100, 2, false},
		{25, 100, 4, true}, {60, 100, 4, false}, {500, 4000, 4, false}, {2000, 4000, 4, false},
	} {
		if got := fair(c.n, c.all, c.among); got != c.fair {
			t.Errorf("%d of %d among %d: fair is %v", c.n, c.all, c.among, got)
		}
	}
}

func TestJournal(t *testing.T) {
	var j logBuffer
	for _, part := range []string{"I1121 11:11:23.1 1 a.go:1] \"Fine\"\nE1121 11:11", ":23.1 1 a.go:1] \"Bad\" err=\"x\"\n", "panic: worse\nEnd\n"} {
		if _, err := j.Write([]byte(part)); err != nil {
			t.Fatal(err)
		}
	}
	lines, errorLines := j.lines()
	if len(lines) != 4 || !slices.Equal(errorLines, []int{1, 2}) || lines[1] != `E1121 11:11:23.1 1 a.go:1] "Bad" err="x"` {
		t.Errorf("lines %q, errorLines %v", lines, errorLines)
	}
}

func TestCountRules(t *testing.T) {
	const listing = `{"nftables": [{"metainfo": {"version": "1.0.6"}}, {"table": {"family": "ip", "name": "t"}},
		{"map": {"name": "m", "map": "verdict", "elem": [["10.0.0.1", {"accept": null}], ["10.0.0.2", {"drop": null}]]}},
		{"set": {"name": "s", "elem": ["10.0.0.3"]}}, {"set": {"name": "empty"}},
		{"chain": {"name": "c"}}, {"chain": {"name": "d"}}, {"rule": {"chain": "c"}}]}`
	got, err := countRules([]byte(listing))
	if want := (contents{chains: 2, rules: 1, elements: 3}); err != nil || got != want {
		t.Errorf("counted %v, %v", got, err)
	}
	if _, err := countRules([]byte("nft: no such thing")); err == nil {
		t.Error("no error for invalid output of nft")
	}
}

// TestExamples checks that every example is valid, has both families, and is listed in the README.
func TestExamples(t *testing.T) {
	dir := filepath.Join("..", "..", "examples")
	readme, err := os.ReadFile(filepath.Join(dir, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	paths, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("examples %v, %v", paths, err)
	}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		file := source.Parse(path, data, false)
		if file.Err != nil || len(file.Objects) != 3 || file.Ignored != nil {
			t.Errorf("%s: %d objects of 3 (a Service and two EndpointSlices), %v", path, len(file.Objects), file.Err)
		}
		if !strings.Contains(string(readme), "("+filepath.Base(path)+")") {
			t.Errorf("the README of the examples does not mention %s", path)
		}
	}
	if file := source.Parse("more", []byte(manifests("more", 300, "10.98", "fd00:10:98:")), false); file.Err != nil {
		t.Error(file.Err)
	}
}

// TestEdits applies every edit of the demo to the examples and reverts it.
func TestEdits(t *testing.T) {
	f, err := copyFolder(filepath.Join("..", "..", "examples"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := f.remove(); err != nil {
			t.Error(err)
		}
	}()
	read := func(name string) string {
		data, err := os.ReadFile(filepath.Join(f.dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	for _, e := range []edit{cartMoves(), cartLosesItsPod(), frontendLosesOne()} {
		before := read(e.file)
		if _, err := f.edit(e); err != nil {
			t.Fatal(err)
		}
		if read(e.file) == before {
			t.Errorf("nothing changed in %s", e.file)
		}
		if _, err := f.edit(e); err == nil {
			t.Errorf("%s was changed twice, though the old text was gone", e.file)
		}
		if _, err := f.edit(e.back()); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(before, read(e.file)); diff != "" {
			t.Errorf("an edit and its reverse changed the files:\n%s", diff)
		}
	}
}
