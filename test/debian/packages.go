package debian

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Fetch downloads packages of a Debian release, such as bookworm, and all that they depend on, and returns the folder that
// holds their content. dir keeps it: what was fetched before is used again, so every list of packages needs its own. apt
// works with lists, archives and a status of its own, so that this machine's do not matter and stay as they are.
func Fetch(dir, release string, packages ...string) (root string, err error) {
	root = filepath.Join(dir, "root")
	if _, err := os.Stat(root); err == nil {
		return root, nil
	}
	mirror, err := mirror()
	if err != nil {
		return "", err
	}
	for _, sub := range []string{"state/lists/partial", "archives/partial"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return "", err
		}
	}
	source := fmt.Sprintf("deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] %s %s main\n", mirror, release)
	for name, content := range map[string]string{"sources.list": source, "status": ""} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			return "", err
		}
	}
	apt := func(args ...string) error {
		own := []string{"-q", "-o", "Dir::State=" + dir + "/state", "-o", "Dir::State::status=" + dir + "/status",
			"-o", "Dir::Cache=" + dir, "-o", "Dir::Etc::sourcelist=" + dir + "/sources.list", "-o", "Dir::Etc::sourceparts=-",
			"-o", "APT::Sandbox::User=root", "-o", "Acquire::Languages=none"}
		return run("apt-get", append(own, args...)...)
	}
	if err := apt("update"); err != nil {
		return "", err
	}
	if err := apt(append([]string{"install", "-y", "--download-only", "--no-install-recommends"}, packages...)...); err != nil {
		return "", err
	}
	return root, layOut(filepath.Join(dir, "archives"), root)
}

// layOut puts the content of all packages in a folder into root, without running what they would run when installed.
func layOut(archives, root string) error {
	packages, err := filepath.Glob(filepath.Join(archives, "*.deb"))
	if err != nil || len(packages) == 0 {
		return errors.Join(fmt.Errorf("there are no packages in %s", archives), err)
	}
	temporary := root + ".new"
	if err := os.RemoveAll(temporary); err != nil {
		return err
	}
	// The links that installing base-files makes.
	for _, name := range []string{"bin", "sbin", "lib", "lib64"} {
		if err := os.MkdirAll(filepath.Join(temporary, "usr", name), 0o755); err != nil {
			return err
		}
		if err := os.Symlink("usr/"+name, filepath.Join(temporary, name)); err != nil {
			return err
		}
	}
	for _, archive := range packages {
		if err := extract(archive, temporary); err != nil {
			return err
		}
	}
	// The links that Debian's alternatives make.
	for _, stem := range []string{"iptables", "ip6tables"} {
		for _, verb := range []string{"", "-save", "-restore"} {
			if err := os.Symlink("xtables-nft-multi", filepath.Join(temporary, "usr/sbin", stem+verb)); err != nil {
				return err
			}
		}
	}
	return os.Rename(temporary, root)
}

// extract unpacks one package. tar follows the links bin, sbin and lib instead of replacing them by folders.
func extract(archive, root string) error {
	content := exec.Command("dpkg-deb", "--fsys-tarfile", archive)
	unpack := exec.Command("tar", "-x", "--keep-directory-symlink", "-C", root)
	var complaints bytes.Buffer
	content.Stderr, unpack.Stderr = &complaints, &complaints
	var err error
	if unpack.Stdin, err = content.StdoutPipe(); err != nil {
		return err
	}
	if err := errors.Join(content.Start(), unpack.Run(), content.Wait()); err != nil {
		return fmt.Errorf("unpack %s: %w: %s", archive, err, complaints.String())
	}
	return nil
}

// mirror returns the Debian mirror that this machine uses.
func mirror() (string, error) {
	// Without --no-release-info apt lists only repositories whose index it has downloaded.
	out, err := exec.Command("apt-get", "indextargets", "--no-release-info", "--format", "$(REPO_URI)", "Created-By: Packages").Output()
	if err != nil {
		return "", fmt.Errorf("ask apt for a mirror of Debian: %w; this needs a Debian system", err)
	}
	addresses := strings.Fields(string(out))
	at := slices.IndexFunc(addresses, func(a string) bool { return strings.HasSuffix(a, "/debian/") || strings.HasSuffix(a, "/debian") })
	if at < 0 {
		return "", fmt.Errorf("apt knows no mirror of Debian, only %q; run this on Debian", addresses)
	}
	return addresses[at], nil
}

// run runs a program that prints something only if it fails.
func run(name string, args ...string) error {
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, out)
	}
	return nil
}
