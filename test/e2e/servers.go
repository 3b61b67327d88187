package e2e

import (
	"context"
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
	apiServer  = kubernetesProgram("kube-apiserver")
	// kubectl runs the commands of docs/install.md.
	kubectl = kubernetesProgram("kubectl")
	manager = kubernetesProgram("kube-controller-manager")
)

func kubernetesProgram(name string) server {
	return server{name: name, module: "k8s.io/kubernetes", main: "k8s.io/kubernetes/cmd/" + name, ldflags: ofKubernetes}
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

// Program returns the path of a program of Kubernetes, or etcd's, and builds it if it is not cached. The version is the one that the folder
// servers pins. The working directory must be in this module or in one that requires it.
func Program(ctx context.Context, name string) (string, error) {
	if name == etcdServer.name {
		return etcdServer.binary(ctx)
	}
	return kubernetesProgram(name).binary(ctx)
}

// Build returns the path of the program of another module's package, and builds it if it is not cached. The version is the one that the
// module in dir requires.
func Build(ctx context.Context, dir, module, main string) (string, error) {
	return server{name: path.Base(main), module: module, main: main, ldflags: stripped}.build(ctx, dir)
}

// binary returns the path of a program that the folder servers pins.
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
	if _, err := s.golang(ctx, dir, "build", "-trimpath", "-ldflags", s.ldflags(version), "-o", half, s.main); err != nil {
		return "", err
	}
	return path, os.Rename(half, path)
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
