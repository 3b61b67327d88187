package cli

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/seed-11a05479/kube-proxy/pkg/features"
	"github.com/seed-11a05479/kube-proxy/test/docs"
	"github.com/seed-11a05479/kube-proxy/test/kubeproxy"
)

const commandsHead = `# Commands

Generated from the help of the program by "make docs"; do not edit.

Without a command, kube-proxy is the proxy. Commands do not change Services, rules or settings of the node. Most ask the proxy on the node
([API](api.md)); analyze, audit, config and fleet run on any machine, including macOS and Windows. --help also has examples.

Shells complete commands, flags and Services after ` + "`source <(kube-proxy completion bash)`" + ` (or zsh, fish, powershell). After
` + "`ln -s $(which kube-proxy) ~/bin/kubectl-kube_proxy`" + ` it is a plugin of kubectl: ` + "`kubectl kube-proxy analyze`" + `.

`

// TestDocsCommands compares docs/commands.md with the help of every command.
func TestDocsCommands(t *testing.T) {
	const page = "../../../docs/commands.md"
	var b strings.Builder
	b.WriteString(commandsHead)
	commands := slices.DeleteFunc(visible(newCommand()), func(c *cobra.Command) bool { return c.Long == "" && c.HasSubCommands() }) // groups
	var texts []string
	var shared sharedLines
	said := map[string]string{} // paragraphs, with the first command that has them
	for _, command := range commands {
		name := command.CommandPath()
		var out, stderr bytes.Buffer
		args := strings.Fields(name + " --help")[1:]
		if code := Run(args, &out, &stderr); code != 0 || stderr.Len() > 0 {
			t.Errorf("%q: exit code %d: %s", args, code, stderr.String())
		}
		above := strings.NewReplacer(readerHelp+"\n", "", "Usage:\n  "+name+" [flags]\n\n", "", "Usage:\n", "", "\nFlags:\n", "\n")
		texts = append(texts, withoutRepeated(said, name, above.Replace(own(out.String()))))
		shared.add(name, texts[len(texts)-1])
	}
	fmt.Fprintf(&b, "## Flags of several commands\n\n%s\n\n```text\n%s```\n",
		strings.Replace(strings.TrimSpace(readerHelp), "It asks", "A command that has --node asks", 1), shared.text())
	for i, command := range commands {
		text := shared.without(command.CommandPath(), texts[i])
		if !command.HasParent() {
			text = withoutFields(t, text, "../../../docs/config.md") + "\n\nFlags that set a field of the configuration file: docs/config.md."
		}
		fmt.Fprintf(&b, "\n## %s\n\n```text\n%s\n```\n", command.CommandPath(), text)
	}
	if *update {
		kubeproxy.MustWrite(page, b.String())
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

// own returns the help of a command without what all commands have, the lists of commands, -h, and global flags, and without examples.
func own(help string) string {
	var kept strings.Builder
	left := false // whether this section is left out
	for line := range strings.Lines(help) {
		line = strings.TrimRight(line, " \n")
		switch line {
		case "Commands:", "Available Commands:", "Global Flags:", "Examples:", "Aliases:":
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

// withoutRepeated returns a command's help without the long paragraphs that an earlier command has.
func withoutRepeated(said map[string]string, command, help string) string {
	paragraphs := strings.Split(help, "\n\n")
	for i, paragraph := range paragraphs {
		switch earlier := said[paragraph]; {
		case earlier == "":
			said[paragraph] = command
		case len(paragraph) > 80:
			paragraphs[i] = "More: " + earlier + "."
		}
	}
	return strings.Join(slices.Compact(paragraphs), "\n\n")
}

// sharedLines are the lines of help that describe a flag, normalized, in the order in which they were added, with the commands that
// have them.
type sharedLines struct {
	order []string
	of    map[string][]string
}

// several is the number of commands from which on a line is described above all commands. Fewer refer to the first of them.
const several = 4

// flagLine returns a line of help without its alignment, and the name of the flag that it describes.
func flagLine(line string) (text, name string, ok bool) {
	text = strings.Join(strings.Fields(line), " ")
	_, after, ok := strings.Cut(text, "--")
	name, _, _ = strings.Cut(after, " ")
	return text, "--" + name, ok && (strings.HasPrefix(text, "--") || strings.HasPrefix(text, "-") && strings.HasPrefix(text[2:], ", --"))
}

func (s *sharedLines) add(command, help string) {
	if s.of == nil {
		s.of = map[string][]string{}
	}
	for line := range strings.Lines(help) {
		if text, _, ok := flagLine(line); ok {
			if s.of[text] == nil {
				s.order = append(s.order, text)
			}
			s.of[text] = append(s.of[text], command)
		}
	}
}

func (s *sharedLines) text() string {
	var b strings.Builder
	for _, text := range s.order {
		if len(s.of[text]) >= several {
			b.WriteString(text + "\n")
		}
	}
	return b.String()
}

// without returns a command's help with the names of the flags that are described elsewhere, in place of their descriptions.
func (s *sharedLines) without(command, help string) string {
	var b strings.Builder
	var where []string
	names := map[string][]string{}
	for line := range strings.Lines(help + "\n") {
		text, name, ok := flagLine(line)
		at := "and"
		switch commands := s.of[text]; {
		case ok && len(commands) >= several:
		case ok && commands[0] != command:
			at = "as " + commands[0] + ":"
		default:
			b.WriteString(line)
			continue
		}
		if names[at] == nil {
			where = append(where, at)
		}
		names[at] = append(names[at], name)
	}
	for _, at := range where {
		fmt.Fprintf(&b, "      %s %s\n", at, strings.Join(names[at], ", "))
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// withoutFields returns the help of the proxy without the flags that set a field of the configuration file: the page of the fields
// describes these.
func withoutFields(t *testing.T, help, page string) string {
	t.Helper()
	fields, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var kept []string
	left := false // whether the flag above is left out
	for line := range strings.Lines(help) {
		line = strings.TrimSuffix(line, "\n")
		_, name, isFlag := flagLine(line)
		if continued := left && strings.HasPrefix(line, strings.Repeat(" ", 30)); continued {
			continue
		}
		ignored := strings.Contains(line, "Ignored with --config.")
		if left = isFlag && regexp.MustCompile("`[^`|\n]*"+name+"[,`]").Match(fields); left {
			continue
		}
		if ignored && isFlag {
			t.Errorf("%s has no field with the flag %s", page, name)
		}
		if n := len(kept); strings.HasSuffix(line, "flags:") && n > 1 && strings.HasSuffix(kept[n-2], "flags:") { // no flag is left in the section
			kept = kept[:n-2]
		} else if line == "" && n > 0 && kept[n-1] == "" {
			continue
		}
		kept = append(kept, line)
	}
	return strings.Join(kept, "\n")
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

// TestCommandsOfPagesParse checks that every kube-proxy command in a page has a known command and known flags.
func TestCommandsOfPagesParse(t *testing.T) {
	version := pflag.Lookup("version") // the one flag whose value is the process's
	t.Cleanup(func() { _ = version.Value.Set(version.DefValue) })
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

// TestGatesAgree checks that --help, the reference and the subcommand describe every gate alike.
func TestGatesAgree(t *testing.T) {
	var help bytes.Buffer
	if code := Run([]string{"--help"}, &help, io.Discard); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	_, listed, _ := subcommand("feature-gates")
	reference, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "feature-gates.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, gate := range features.Describe() {
		for where, text := range map[string]struct{ in, want string }{
			"--help":               {help.String(), gate.Name + "=true|false (" + gate.Stage + ", default "},
			"feature-gates":        {listed, gate.End},
			"docs":                 {string(reference), fmt.Sprintf("| %s | %s | %t | %s |", gate.Name, gate.Stage, gate.Default, gate.Effect)},
			"help has the default": {help.String(), gate.String()},
		} {
			if !strings.Contains(text.in, text.want) {
				t.Errorf("%s: no %q in\n%s", where, text.want, text.in)
			}
		}
	}
}
