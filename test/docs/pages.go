// Package docs parses the project's Markdown pages. Its tests check that links resolve, that the index is complete, and that
// the targets, tests and Events that pages name exist.
package docs

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Page is a Markdown file.
type Page struct {
	// Path is relative to the repository, with slashes.
	Path string
	// Prose are the lines outside code blocks, Blocks the code blocks.
	Prose  []string
	Blocks []Block
}

// Block is a fenced code block.
type Block struct {
	Language string
	Lines    []string
}

// Pages reads all Markdown files of a repository, except those in hidden folders, bin and testdata.
func Pages(root string) (pages []Page, err error) {
	err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != root && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "bin" || entry.Name() == "testdata"):
			return fs.SkipDir
		case entry.IsDir() || filepath.Ext(path) != ".md":
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		page, err := parse(string(text))
		page.Path = filepath.ToSlash(relative)
		pages = append(pages, page)
		if err != nil {
			return fmt.Errorf("%s: %w", page.Path, err)
		}
		return nil
	})
	return pages, err
}

func parse(text string) (page Page, err error) {
	fence := ""
	for number, line := range strings.Split(text, "\n") {
		marker := line[:len(line)-len(strings.TrimLeft(line, "`"))]
		switch {
		case fence == "" && len(marker) >= 3:
			fence = marker
			page.Blocks = append(page.Blocks, Block{Language: line[len(marker):]})
		case fence == "":
			page.Prose = append(page.Prose, line)
		case line == fence:
			fence = ""
		default:
			last := &page.Blocks[len(page.Blocks)-1]
			last.Lines = append(last.Lines, line)
		}
		if fence != "" && number == strings.Count(text, "\n") {
			return page, fmt.Errorf("the last code block does not end")
		}
	}
	return page, nil
}

// Commands returns the commands of the page's blocks in the languages sh and console, without prompts and comments. If a block
// has prompts ("$ "), all other lines are output.
func (p Page) Commands() (commands []string) {
	for _, block := range p.Blocks {
		if block.Language != "sh" && block.Language != "console" {
			continue
		}
		prompts := slices.ContainsFunc(block.Lines, func(line string) bool { return strings.HasPrefix(line, "$ ") })
		continued := ""
		for _, line := range block.Lines {
			command, isCommand := strings.CutPrefix(line, "$ ")
			if prompts && !isCommand && continued == "" {
				continue
			}
			command, _, _ = strings.Cut(command, " # ")
			command = continued + strings.TrimSpace(command)
			if before, more := strings.CutSuffix(command, "\\"); more {
				continued = before
				continue
			}
			continued = ""
			if command != "" && !strings.HasPrefix(command, "#") {
				commands = append(commands, strings.Join(strings.Fields(command), " "))
			}
		}
	}
	return commands
}

// Links returns the targets of the page's links and pictures, as written.
func (p Page) Links() (targets []string) {
	link := regexp.MustCompile(`\]\(([^)\s]+)\)|(?:src|href)="([^"]+)"`)
	code := regexp.MustCompile("`[^`]*`")
	for _, match := range link.FindAllStringSubmatch(code.ReplaceAllString(strings.Join(p.Prose, "\n"), "`code`"), -1) {
		targets = append(targets, match[1]+match[2])
	}
	return targets
}

// Anchors returns the fragments that link to the page's headings, as GitHub derives them: in lower case, without
// punctuation, with hyphens for spaces, and numbered if a heading occurs again.
func (p Page) Anchors() (anchors []string) {
	other := regexp.MustCompile(`[^\p{L}\p{N}\p{M} _-]`)
	for _, line := range p.Prose {
		heading := strings.TrimLeft(line, "#")
		if heading == line || !strings.HasPrefix(heading, " ") {
			continue
		}
		anchor := strings.ReplaceAll(other.ReplaceAllString(strings.ToLower(strings.TrimSpace(heading)), ""), " ", "-")
		for i, first := 1, anchor; slices.Contains(anchors, anchor); i++ {
			anchor = fmt.Sprintf("%s-%d", first, i)
		}
		anchors = append(anchors, anchor)
	}
	return anchors
}
