package ipt

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Words splits a line of iptables-save or iptables-restore into words; "..." is one word, in which a backslash escapes. An
// empty line is an error.
func Words(line string) ([]string, error) {
	var words []string
	var word strings.Builder
	open, quoted := false, false
	for i := 0; i < len(line); i++ {
		switch c := line[i]; {
		case quoted && c == '\\' && i+1 < len(line):
			i++
			word.WriteByte(line[i])
		case c == '"':
			quoted, open = !quoted, true
		case c == ' ' && !quoted:
			if open {
				words = append(words, word.String())
			}
			word.Reset()
			open = false
		default:
			word.WriteByte(c)
			open = true
		}
	}
	if quoted {
		return nil, fmt.Errorf("missing quotation mark: %s", line)
	}
	if open {
		words = append(words, word.String())
	}
	if len(words) == 0 {
		return nil, errors.New("empty line")
	}
	return words, nil
}

// Canonical is equal for equivalent rules, in whatever order iptables prints their parts.
func Canonical(rule string) string {
	return Listed(rule).canonical()
}

func (r Rule) canonical() string {
	words, err := r.args()
	if err != nil {
		return r.listed
	}
	var parts []string
	open := false // whether the last word is an option or its !
	for i, word := range words {
		last := ""
		if i > 0 {
			last = words[i-1]
		}
		option := word == "!" || strings.HasPrefix(word, "-") && last != "--comment"
		switch {
		case option && (!open || last != "!"), len(parts) == 0:
			parts = append(parts, word)
		case last == "--probability": // versions of iptables print different numbers of digits
			if p, err := strconv.ParseFloat(word, 64); err == nil {
				word = strconv.FormatFloat(p, 'f', 7, 64)
			}
			fallthrough
		default:
			parts[len(parts)-1] += " " + word
		}
		open = option
	}
	slices.Sort(parts)
	return strings.Join(parts, "\x00")
}
