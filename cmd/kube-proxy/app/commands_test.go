package app

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"github.com/seed-11a05479/kube-proxy/test/docs"
)

const commandsHead = `# Commands

Generated from the help of the program by "make docs"; do not edit.

Without a command, kube-proxy is the proxy. No other command changes Services, rules or settings of the node. Most ask the proxy that runs on
this node ([API](api.md)); analyze, audit and config work on any machine, also on macOS and Windows. All have --help and --version.

`

// TestDocsCommands compares docs/commands.md with the help of every command.
func TestDocsCommands(t *testing.T) {
	const page = "../../../docs/commands.md"
	var b strings.Builder
	b.WriteString(commandsHead + "| command | |\n|---|---|\n")
	commands := visible(newCommand())
	for _, command := range commands {
		name := command.CommandPath()
		fmt.Fprintf(&b, "| [`%s`](#%s) | %s |\n", name, strings.ReplaceAll(name, " ", "-"), short(command))
	}
	for _, command := range commands {
		var out, stderr bytes.Buffer
		args := strings.Fields(command.CommandPath() + " --help")[1:]
		if code := Run(args, &out, &stderr); code != 0 || stderr.Len() > 0 {
			t.Errorf("%q: exit code %d: %s", args, code, stderr.String())
		}
		fmt.Fprintf(&b, "\n## %s\n\n```text\n%s\n```\n", command.CommandPath(), own(out.String()))
	}
	if *update {
		mustWrite(page, b.String())
		return
	}
	before, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(before), b.String()); diff != "" {
		t.Errorf("docs/commands.md differs (-file +now); run make docs:\n%s", diff)
	}
}

// own returns the help of a command without what all commands have: the lists of commands, -h, and global flags.
func own(help string) string {
	var kept strings.Builder
	left := false // whether this section is left out
	for line := range strings.Lines(help) {
		line = strings.TrimRight(line, " \n")
		switch line {
		case "Commands:", "Available Commands:", "Global Flags:":
			left = true
			continue
		}
		if left && line == "" {
			left = false
			continue
		}
		if !left && !strings.HasPrefix(line, "  -h, --help ") && !strings.HasPrefix(line, `Use "kube-proxy`) {
			kept.WriteString(line + "\n")
		}
	}
	return strings.TrimSuffix(strings.Trim(kept.String(), "\n"), "\n\nFlags:")
}

// visible are a command and those below it which its help lists.
func visible(command *cobra.Command) []*cobra.Command {
	all := []*cobra.Command{command}
	for _, sub := range command.Commands() {
		if sub.IsAvailableCommand() {
			all = append(all, visible(sub)...)
		}
	}
	return all
}

func short(command *cobra.Command) string {
	if command.HasParent() {
		return command.Short
	}
	return "Run the proxy"
}

// TestCommandsOfPagesParse checks that every kube-proxy command in a page has a known command and known flags.
func TestCommandsOfPagesParse(t *testing.T) {
	pages, err := docs.Pages("../../..")
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, page := range pages {
		for _, line := range page.Commands() {
			for _, args := range ownCommands(line) {
				checked++
				if err := parses(args); err != nil {
					t.Errorf("%s: %s: %v", page.Path, line, err)
				}
			}
		}
	}
	if checked < 30 {
		t.Errorf("checked %d commands", checked)
	}
	for _, wrong := range []string{"--no-such-flag", "service lost", "explain --form 10.0.0.1"} {
		if parses(strings.Fields(wrong)) == nil {
			t.Errorf("no error for %q", wrong)
		}
	}
}

// ownCommands returns the arguments of each call of kube-proxy in a shell command. Names of images and objects are none.
func ownCommands(line string) (calls [][]string) {
	words := strings.Fields(line)
	for i, word := range words {
		first := i == 0 || slices.Contains([]string{"|", "--", "&&", "sudo"}, words[i-1])
		if !first || strings.TrimPrefix(strings.TrimPrefix(word, "bin/"), "./") != "kube-proxy" {
			continue
		}
		args := words[i+1:]
		if end := slices.IndexFunc(args, func(s string) bool { return slices.Contains([]string{"|", ">", "2>", "&", "&&", ">>"}, s) }); end >= 0 {
			args = args[:end]
		}
		calls = append(calls, args)
	}
	return calls
}

// parses reads arguments as the program does, and runs nothing.
func parses(args []string) error {
	command, rest, err := newCommand().Find(args)
	if err != nil {
		return err
	}
	if err := command.ParseFlags(rest); err != nil {
		return err
	}
	return command.ValidateArgs(command.Flags().Args())
}
