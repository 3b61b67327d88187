package e2e

import (
	"fmt"
	"strings"
	"testing"
)

// section is the commands below a heading of a page.
type section struct {
	heading  string
	commands []string
}

// commands returns the commands of a page: the lines that begin with a $ in blocks of the language console.
func commands(page string) (found []section) {
	console := false
	for line := range strings.Lines(page) {
		line = strings.TrimSuffix(line, "\n")
		if heading, ok := strings.CutPrefix(line, "## "); ok && !console {
			found = append(found, section{heading: heading})
		}
		if strings.HasPrefix(line, "```") {
			console = line == "```console"
		} else if command, ok := strings.CutPrefix(line, "$ "); ok && console {
			last := &found[len(found)-1]
			last.commands = append(last.commands, command)
		}
	}
	return found
}

// TestCommands checks what counts as a command of a page.
func TestCommands(t *testing.T) {
	page := "# Page\n## One\n```console\n$ first | a\noutput\n$ second\n```\n$ prose\n```sh\n$ other\n```\n## Two\n```console\n## no heading\n$ third\n```\n"
	if got, want := fmt.Sprint(commands(page)), "[{One [first | a second]} {Two [third]}]"; got != want {
		t.Errorf("commands = %s, want %s", got, want)
	}
}
