package ipt

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// BenchmarkEncode encodes a rule of each known form.
func BenchmarkEncode(b *testing.B) {
	e := &encoder{family: IPv4}
	var buffer []byte
	var rules []Rule
	for _, line := range encodable {
		_, text, _ := strings.Cut(line, " ")
		rules = append(rules, rule(b, text))
	}
	b.ReportAllocs()
	for b.Loop() {
		for _, line := range rules {
			encoded, _, ok := e.rule(buffer[:0], line)
			if !ok {
				b.Fatal(line)
			}
			buffer = encoded
		}
	}
	b.ReportMetric(float64(len(encodable)), "rules/op")
}

// TestEncodesCases reads the rules of all cases as values: each is the same text again, and can be encoded.
func TestEncodesCases(t *testing.T) {
	files, err := filepath.Glob("../../../test/cases/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	encoders := []*encoder{{family: IPv4}, {family: IPv6}}
	rules := 0
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		inside, chain := false, ""
		for line := range strings.Lines(string(text)) {
			line = strings.TrimRight(line, "\n")
			text, isRule := strings.CutPrefix(line, "\t-A ")
			switch {
			case strings.HasPrefix(line, "-- "):
				inside = strings.HasPrefix(line, "-- iptables")
			case strings.HasPrefix(line, "*"):
				_, chain, _ = strings.Cut(line, " ")
			case inside && isRule && isUserChain(chain):
				rules++
				value := rule(t, text)
				if !slices.ContainsFunc(encoders, func(e *encoder) bool { _, _, ok := e.rule(nil, value); return ok }) {
					t.Errorf("%s: a rule of chain %s cannot be encoded: %s", filepath.Base(path), chain, text)
				}
			}
		}
	}
	if rules < 100 {
		t.Errorf("only %d rules were found", rules)
	}
}
