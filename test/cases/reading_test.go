package cases

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
)

// listing is the mark of a generated listing: <!-- cluster-ip nftables: map services; chain pick-3 -->, the case, the part of
// its file, and the titles of blocks, or none for the whole part. The code block below it is generated.
var listing = regexp.MustCompile(`^<!-- ([a-z-]+) ([a-z.]+)(?:: (.*))? -->\n$`)

// TestDocsReadingTheRules compares the listings in docs/reading-the-rules.md with the parts of the cases that they are from.
func TestDocsReadingTheRules(t *testing.T) {
	const page = "../../docs/reading-the-rules.md"
	before, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var after strings.Builder
	listings, inListing, opened := 0, false, false
	for line := range strings.Lines(string(before)) {
		if mark := listing.FindStringSubmatch(line); mark != nil {
			listings++
			text, err := listed(mark[1], mark[2], mark[3])
			if err != nil {
				t.Fatal(err)
			}
			after.WriteString(line + "```text\n" + text + "```\n")
			inListing, opened = true, false
			continue
		}
		switch {
		case !inListing:
			after.WriteString(line)
		case line == "```\n":
			inListing = false
		case !opened && line != "```text\n":
			t.Fatalf("%q follows a mark; want a code block", line)
		default:
			opened = true
		}
	}
	if listings < 7 {
		t.Errorf("%d listings", listings)
	}
	if *update {
		if err := os.WriteFile(page, []byte(after.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(string(before), after.String()); diff != "" {
		t.Errorf("docs/reading-the-rules.md differs from the cases (-page +cases); run make docs:\n%s", diff)
	}
}

// listed returns blocks of a part of a case, or of the skeleton.
func listed(name, of, titles string) (string, error) {
	path := name + ".txtar"
	if name == "skeleton" {
		path = "testdata/" + path
	}
	archive, err := txtar.ParseFile(path)
	if err != nil {
		return "", err
	}
	text := part(archive, of)
	if text == "" {
		return "", fmt.Errorf("%s has no part %s", path, of)
	}
	if titles == "" {
		return text, nil
	}
	var chosen strings.Builder
	wanted := strings.Split(titles, "; ")
	keep := false
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "\t") && line != "}\n" {
			title := strings.TrimSuffix(strings.TrimSuffix(line, "\n"), " {")
			i := slices.Index(wanted, title)
			if keep = i >= 0; keep {
				wanted = slices.Delete(wanted, i, i+1)
			}
		}
		if keep {
			chosen.WriteString(line)
		}
	}
	if len(wanted) > 0 {
		return "", fmt.Errorf("%s, part %s, has no %q", path, of, wanted)
	}
	return chosen.String(), nil
}
