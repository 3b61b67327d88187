package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
)

// server is a program of another module.
type server struct {
	name, module, main string
	// ldflags returns the linker flags for a version such as v1.37.2.
	ldflags func(version string) string
}

var (
	etcdServer = server{name: "etcd", module: "go.etcd.io/etcd/server/v3", main: "go.etcd.io/etcd/server/v3", ldflags: stripped}
	apiServer  = kubernetesProgram("kube-apiserver", "cmd/kube-apiserver")
	// kubectl runs the commands of docs/install.md.
	kubectl = kubernetesProgram("kubectl", "cmd/kubectl")
	manager = kubernetesProgram("kube-controller-manager", "cmd/kube-controller-manager")
)

func kubernetesProgram(name, folder string) server {
	return server{name: name, module: "k8s.io/kubernetes", main: "k8s.io/kubernetes/" + folder, ldflags: ofKubernetes}
}

// stripped returns the linker flags of a program that does not print its version.
func stripped(string) string { return "-s -w" }

// ofKubernetes returns the linker flags that set the version of a Kubernetes program.
func ofKubernetes(version string) string {
	const set = " -X k8s.io/component-base/version."
	parts := strings.Split(strings.TrimPrefix(version, "v"), ".")
	return "-s -w" + set + "gitVersion=" + version + set + "gitMajor=" + parts[0] + set + "gitMinor=" + parts[1]
}

// Peer returns the path of Kubernetes' own kube-proxy, which test/bench compares with ours, as [Program] does.
func Peer(ctx context.Context) (string, error) { return Program(ctx, "kube-proxy") }

// Program returns the path of a program of Kubernetes (also of its tests: e2e.test, and ginkgo, which runs it), or etcd's, and builds it if
// it is not cached. The version is the one that the folder servers pins. The working directory must be in this module or in one that
// requires it.
func Program(ctx context.Context, name string) (string, error) {
	s := kubernetesProgram(name, "cmd/"+name)
	switch name {
	case etcdServer.name:
		s = etcdServer
	case "agnhost", "regression-issue-74839":
		s = kubernetesProgram(name, "test/images/"+name)
	case "e2e.test":
		s = kubernetesProgram(name, "test/e2e")
	case "ginkgo":
		s = server{name: name, module: "github.com/onsi/ginkgo/v2", main: "github.com/onsi/ginkgo/v2/ginkgo", ldflags: stripped}
	}
	return s.binary(ctx)
}

// Build returns the path of the program of another module's package, and builds it if it is not cached. The version is the one that the
// module in dir requires.
func Build(ctx context.Context, dir, module, main string) (string, error) {
	return server{name: path.Base(main), module: module, main: main, ldflags: stripped}.build(ctx, dir)
}

// APIServers returns the paths of an API server of each supported release of Kubernetes, the newest last, as [Peer] does.
func APIServers(ctx context.Context) ([]string, error) {
	var paths []string
	for _, version := range []string{"v1.34.2", "v1.35.4", "v1.36.3"} {
		path, err := apiServer.release(ctx, version)
		if err != nil {
			return nil, err
		}
		paths = append(paths, path)
	}
	newest, err := apiServer.binary(ctx)
	return append(paths, newest), err
}

// binary returns the path of the server's program and builds it if that version is not cached.
func (s server) binary(ctx context.Context) (string, error) {
	if own := os.Getenv("KUBE_APISERVER"); own != "" && s.name == apiServer.name {
		return own, nil
	}
	dir, err := s.golang(ctx, ".", "list", "-m", "-f", "{{.Dir}}", "github.com/seed-11a05479/kube-proxy/test/e2e")
	if err != nil {
		return "", err
	}
	return s.build(ctx, filepath.Join(dir, "servers"))
}

// build returns the path of the program, and builds it in dir if that version is not cached.
func (s server) build(ctx context.Context, dir string) (string, error) {
	version, err := s.golang(ctx, dir, "list", "-m", "-f", "{{.Version}}", s.module)
	if err != nil {
		return "", err
	}
	return s.cached(version, func(half string) error { return s.compile(ctx, dir, version, half) })
}

// release is binary for a program of another release of Kubernetes than the pinned one, with the modules that it requires.
func (s server) release(ctx context.Context, version string) (string, error) {
	return s.cached(version, func(half string) error {
		dir, err := os.MkdirTemp("", "kubernetes-"+version+"-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		if err := s.require(ctx, dir, version); err != nil {
			return err
		}
		return s.compile(ctx, dir, version, half, "-mod=mod")
	})
}

// require writes a go.mod that requires a release of Kubernetes. In its own, the modules that are published with it are folders.
func (s server) require(ctx context.Context, dir, version string) error {
	var release struct{ GoMod string }
	if err := s.query(ctx, dir, &release, "mod", "download", "-json", s.module+"@"+version); err != nil {
		return err
	}
	var own struct {
		Replace []struct{ Old struct{ Path string } }
	}
	if err := s.query(ctx, dir, &own, "mod", "edit", "-json", release.GoMod); err != nil {
		return err
	}
	var text strings.Builder
	fmt.Fprintf(&text, "module servers\n\ngo 1.26.0\n\nrequire %s %s\n", s.module, version)
	for _, r := range own.Replace {
		fmt.Fprintf(&text, "replace %[1]s => %[1]s v0.%[2]s\n", r.Old.Path, strings.TrimPrefix(version, "v1."))
	}
	return os.WriteFile(filepath.Join(dir, "go.mod"), []byte(text.String()), 0o600)
}

// compile writes the program, of the module in a folder.
func (s server) compile(ctx context.Context, dir, version, file string, flags ...string) error {
	args := []string{"build"}
	if path.Ext(s.name) == ".test" {
		args = []string{"test", "-c", "-vet=off"}
	}
	args = append(append(args, "-trimpath", "-ldflags", s.ldflags(version), "-o", file), flags...)
	_, err := s.golang(ctx, dir, append(args, s.main)...)
	return err
}

// cached returns the path of the program of a version in the user's cache, and writes it if it is not there.
func (s server) cached(version string, write func(path string) error) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	path := filepath.Join(cache, "kube-proxy-e2e", s.name+"-"+version)
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", err
	}
	fmt.Fprintf(os.Stderr, "building %s %s into %s (only once, takes some minutes)\n", s.name, version, path)
	// Build under another name and rename, so that an incomplete program is never used.
	half := fmt.Sprintf("%s.%d", path, os.Getpid())
	defer os.Remove(half)
	if err := write(half); err != nil {
		return "", err
	}
	return path, os.Rename(half, path)
}

// query runs the go command in a folder, and reads the JSON that it prints.
func (s server) query(ctx context.Context, dir string, into any, args ...string) error {
	out, err := s.golang(ctx, dir, args...)
	if err != nil {
		return err
	}
	return json.Unmarshal([]byte(out), into)
}

// golang runs the go command in a folder.
func (s server) golang(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	out, err := cmd.Output()
	if err != nil {
		detail := ""
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
			detail = strings.TrimSpace(string(exit.Stderr))
		}
		return "", fmt.Errorf("go %s, for %s: %w: %s", args[0], s.name, err, detail)
	}
	return strings.TrimSpace(string(out)), nil
}
