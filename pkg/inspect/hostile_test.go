package inspect

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/source/manifests"
	"github.com/seed-11a05479/kube-proxy/pkg/status"
	"github.com/seed-11a05479/kube-proxy/test/cases"
	"github.com/seed-11a05479/kube-proxy/test/hostile"
)

// TestHostileText prints the objects of an attacker, as text and as JSON: a terminal interprets nothing in the text, no line is
// theirs, and the JSON is valid.
func TestHostileText(t *testing.T) {
	victims, err := cases.Load("../../test/hostile")
	must(t, err)
	for _, victim := range victims {
		for _, attack := range hostile.Attacks() {
			if strings.Contains(attack.Name, "thousand") || strings.Contains(attack.Name, "times") {
				continue // nothing but numbers
			}
			c := *victim
			c.Snapshot, _ = victim.With(func(u *cluster.Update) { manifests.Apply(u, attack.Objects(victim.Family)) })
			for _, width := range []int{0, 60} {
				checkText(t, attack.Name, write(t, &c, Printer{Width: width}))
			}
			list, err := of(&c).Services(t.Context(), status.Filter{}, false)
			must(t, err)
			data, err := json.Marshal(list)
			must(t, err)
			if !utf8.Valid(data) || !json.Valid(data) || strings.ContainsAny(string(data), "\x00\x1b\n<>") {
				t.Errorf("%s: the JSON is invalid, or has control characters or tags: %q", attack.Name, data)
			}
		}
	}
}

func checkText(t *testing.T, name, text string) {
	t.Helper()
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "$") {
			continue // the test's own: the command
		}
		if at := strings.IndexFunc(strings.TrimSuffix(line, "\n"), func(r rune) bool { return !unicode.IsPrint(r) }); at >= 0 {
			t.Errorf("%s: not printable at %d: %q", name, at, line)
		}
		if strings.HasPrefix(line, "I0101") || strings.HasPrefix(line, "COMMIT") {
			t.Errorf("%s: an object has written a whole line: %q", name, line)
		}
	}
}
