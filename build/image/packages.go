package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// pins is packages.json: the Debian packages of the image.
type pins struct {
	// Release is the Debian release by its code name, VersionID its version in /etc/os-release.
	Release   string `json:"release"`
	VersionID string `json:"versionID"`
	// Wanted are the packages that kube-proxy uses, without their dependencies.
	Wanted []string `json:"wanted"`
	// Packages are the wanted packages and their dependencies, by Debian architecture, sorted by name.
	Packages map[string][]pin `json:"packages"`
}

// pin is one package file.
type pin struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	SHA256  string `json:"sha256"`
}

func (p pin) String() string { return p.Name + "=" + p.Version }

func readPins(path string) (*pins, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	p := &pins{}
	if err := json.Unmarshal(data, p); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return p, nil
}

func (p *pins) write(path string) error {
	data, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(data, '\n'), 0o644)
}

// apt fetches packages of one release and architecture. Its lists and archives are separate from the machine's; it uses
// the machine's mirrors and keys.
type apt struct {
	dir  string // lists, archives and sources of this release and architecture
	arch string
	lock *os.File // of the folder, until it is closed: others that build an image wait
}

// newApt creates a directory for apt below cache.
func newApt(cache, release, arch string) (*apt, error) {
	dir, err := filepath.Abs(filepath.Join(cache, release, arch))
	if err != nil {
		return nil, err
	}
	for _, sub := range []string{"lists/partial", "archives/partial", "etc"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return nil, err
		}
	}
	lock, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	main, security, err := mirrors()
	if err != nil {
		return nil, err
	}
	const signed = "[signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]"
	sources := fmt.Sprintf("deb %s %s %s main\ndeb %s %s %s-updates main\ndeb %s %s %s-security main\n",
		signed, main, release, signed, main, release, signed, security, release)
	return &apt{dir: dir, arch: arch, lock: lock}, errors.Join(
		os.WriteFile(filepath.Join(dir, "etc", "sources.list"), []byte(sources), 0o644),
		os.WriteFile(filepath.Join(dir, "status"), nil, 0o644))
}

// mirrors returns the mirrors of Debian and of its security updates that this machine uses.
func mirrors() (main, security string, err error) {
	lists, _ := filepath.Glob("/etc/apt/sources.list.d/*")
	for _, path := range append([]string{"/etc/apt/sources.list"}, lists...) {
		if !strings.HasSuffix(path, ".list") && !strings.HasSuffix(path, ".sources") {
			continue // apt ignores it, too
		}
		file, err := os.Open(path)
		if err != nil {
			continue
		}
		for line := bufio.NewScanner(file); line.Scan(); {
			for word := range strings.FieldsSeq(line.Text()) {
				switch word = strings.TrimSuffix(word, "/"); {
				case strings.HasPrefix(word, "#"):
				case main == "" && strings.Contains(word, "://") && strings.HasSuffix(word, "/debian"):
					main = word
				case security == "" && strings.Contains(word, "://") && strings.HasSuffix(word, "/debian-security"):
					security = word
				}
			}
		}
		file.Close()
	}
	if main == "" || security == "" {
		return "", "", errors.New("the apt sources of this machine name no mirror of Debian (…/debian and …/debian-security); build the image on Debian")
	}
	return main, security, nil
}

// run runs apt-get in the folder of archives.
func (a *apt) run(ctx context.Context, args ...string) error {
	options := []string{
		"-q", "-y", "--no-install-recommends",
		"-o", "Dir::State::Lists=" + a.dir + "/lists", "-o", "Dir::State::status=" + a.dir + "/status",
		"-o", "Dir::Cache=" + a.dir, "-o", "Dir::Cache::archives=" + a.dir + "/archives",
		"-o", "Dir::Etc::sourcelist=" + a.dir + "/etc/sources.list", "-o", "Dir::Etc::sourceparts=-",
		"-o", "APT::Architecture=" + a.arch, "-o", "APT::Architectures=" + a.arch,
		"-o", "Acquire::Retries=3",
		"-o", "APT::Sandbox::User=root", // the user _apt may lack permission for the directory
	}
	cmd := exec.CommandContext(ctx, "apt-get", append(options, args...)...)
	cmd.Dir = filepath.Join(a.dir, "archives")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("apt-get %s (%s): %w: %s", args[0], a.arch, err, lastLines(string(out), 3))
	}
	return nil
}

// resolve fetches the newest version of the wanted packages and their dependencies, and pins it.
func (a *apt) resolve(ctx context.Context, wanted []string) ([]pin, error) {
	if err := os.RemoveAll(filepath.Join(a.dir, "archives")); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Join(a.dir, "archives", "partial"), 0o755); err != nil {
		return nil, err
	}
	if err := errors.Join(a.run(ctx, "update"), a.run(ctx, append([]string{"install", "--download-only"}, wanted...)...)); err != nil {
		return nil, err
	}
	files, err := filepath.Glob(filepath.Join(a.dir, "archives", "*.deb"))
	if err != nil {
		return nil, err
	}
	var all []pin
	for _, file := range files {
		p, err := pinOf(ctx, file)
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	slices.SortFunc(all, func(x, y pin) int { return strings.Compare(x.Name, y.Name) })
	return all, nil
}

func pinOf(ctx context.Context, file string) (pin, error) {
	out, err := exec.CommandContext(ctx, "dpkg-deb", "--field", file, "Package", "Version").Output()
	if err != nil {
		return pin{}, fmt.Errorf("dpkg-deb --field %s: %w", file, err)
	}
	var p pin
	for line := range strings.Lines(string(out)) {
		switch name, value, _ := strings.Cut(strings.TrimSpace(line), ": "); name {
		case "Package":
			p.Name = value
		case "Version":
			p.Version = value
		}
	}
	p.SHA256, err = digest(file)
	return p, err
}

// fetch returns the paths of pinned package files. It fetches those that are not in the cache.
func (a *apt) fetch(ctx context.Context, want []pin) ([]string, error) {
	paths := make([]string, len(want))
	var missing []string
	for i, p := range want {
		paths[i] = filepath.Join(a.dir, "archives", a.fileName(p))
		if !exists(paths[i]) {
			paths[i] = filepath.Join(a.dir, "archives", strings.TrimSuffix(a.fileName(p), a.arch+".deb")+"all.deb")
		}
		if !exists(paths[i]) {
			missing = append(missing, p.String())
		}
	}
	if len(missing) > 0 {
		if err := errors.Join(a.run(ctx, "update"), a.run(ctx, append([]string{"download"}, missing...)...)); err != nil {
			return nil, fmt.Errorf("%w\nIf the mirror no longer has a pinned version, pin the current ones with make image-packages", err)
		}
		return a.fetch(ctx, want)
	}
	for i, p := range want {
		if got, err := digest(paths[i]); err != nil || got != p.SHA256 {
			return nil, errors.Join(err, fmt.Errorf("%s has the SHA-256 digest %s, packages.json pins %s; delete the file if it is damaged", paths[i], got, p.SHA256))
		}
	}
	return paths, nil
}

// fileName returns apt's name of a package file: a colon in the version is escaped.
func (a *apt) fileName(p pin) string {
	return p.Name + "_" + strings.ReplaceAll(p.Version, ":", "%3a") + "_" + a.arch + ".deb"
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func digest(path string) (string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:]), nil
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "; ")
}
