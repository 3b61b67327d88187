package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// relative matches the target of a link in CHANGELOG.md to a file of the repository.
var relative = regexp.MustCompile(`\]\(([^():#][^():]*)\)`)

// writeNotes writes RELEASE_NOTES.md: the version's section of CHANGELOG.md, the image's digest, how to check the files, and
// the git log since the previous tag. The page of a release is not among the repository's files, so links to them become absolute.
func (r *release) writeNotes(ctx context.Context) error {
	changelog, err := os.ReadFile(filepath.Join(r.root, "CHANGELOG.md"))
	if err != nil {
		return err
	}
	digest, err := os.ReadFile(filepath.Join(r.image, "digest"))
	if err != nil {
		return err
	}
	before, commits, err := r.log(ctx)
	if err != nil {
		return err
	}
	var out bytes.Buffer
	fmt.Fprintf(&out, "# kube-proxy %s\n\n", r.version)
	if section := section(string(changelog), r.version); section != "" {
		fmt.Fprintf(&out, "%s\n\n", relative.ReplaceAllString(section, "]("+r.source+"/blob/"+r.revision+"/$1)"))
	}
	fmt.Fprintf(&out, "Image: `%s`. Check the files with `sha256sum --check --ignore-missing SHA256SUMS`.\n\n", bytes.TrimSpace(digest))
	if before != "" {
		fmt.Fprintf(&out, "## Commits since %s\n\n", before)
	}
	for _, commit := range commits {
		fmt.Fprintf(&out, "* %s\n", commit)
	}
	return os.WriteFile(filepath.Join(r.out, "RELEASE_NOTES.md"), out.Bytes(), 0o644)
}

// section returns the text below a version's heading in CHANGELOG.md. A version that is not released yet has the heading
// "v1.2.3 (unreleased)"; a build of a commit after a tag has no section.
func section(changelog, version string) string {
	_, rest, found := strings.Cut(changelog, "\n## "+version+" ")
	if !found {
		_, rest, found = strings.Cut(changelog, "\n## "+version+"\n")
		rest = "\n" + rest
	}
	if !found {
		return ""
	}
	_, text, _ := strings.Cut(rest, "\n")
	text, _, _ = strings.Cut(text, "\n## ")
	return strings.TrimSpace(text)
}

// log returns the tag before and the subjects of the commits since then, newest first. The first release has neither: its
// commits are the whole history.
func (r *release) log(ctx context.Context) (before string, commits []string, err error) {
	// A tag of HEAD itself is this release's.
	before, err = r.git(ctx, "describe", "--tags", "--abbrev=0", "--match", "v[0-9]*", "HEAD^")
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return "", nil, nil
	} else if err != nil {
		return "", nil, err
	}
	out, err := r.git(ctx, "log", "--no-merges", "--format=%s (%h)", "--abbrev=12", before+"..HEAD")
	if err != nil {
		return "", nil, err
	}
	return before, strings.Split(out, "\n"), nil
}

// git runs git in the repository.
func (r *release) git(ctx context.Context, args ...string) (string, error) {
	var stderr strings.Builder
	command := exec.CommandContext(ctx, "git", append([]string{"-C", r.root}, args...)...)
	command.Stderr = &stderr
	out, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w: %s", args[0], err, strings.TrimSpace(stderr.String()))
	}
	return strings.TrimSpace(string(out)), nil
}
