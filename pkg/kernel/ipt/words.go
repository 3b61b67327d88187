package ipt

import (
	"errors"
	"fmt"
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
