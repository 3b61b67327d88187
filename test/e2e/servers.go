package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// server is a program of the module in the folder servers.
type server struct {
	name, module, main string
	// ldflags are given the version, such as v1.36.3, in three parts.
	ldflags func(version string) string
}

var (
	etcdServer = server{name: "etcd", module: "go.etcd.io/etcd/server/v3", main: "go.etcd.io/etcd/server/v3",
		ldflags: func(string) string { return "-s -w" }}
	apiServer = server{name: "kube-apiserver", module: "k8s.io/kubernetes", main: "k8s.io/kubernetes/cmd/kube-apiserver", ldflags: ofKubernetes}
	// peer is what this repository's program is measured beside.
	peer = server{name: "kube-proxy", module: "k8s.io/kubernetes", main: "k8s.io/kubernetes/cmd/kube-proxy", ldflags: ofKubernetes}
)

// ofKubernetes sets what a program of Kubernetes tells of its version.
func ofKubernetes(version string) string {
	const set = " -X k8s.io/component-base/version."
	parts := strings.Split(strings.TrimPrefix(version, "v"), ".")
	return "-s -w" + set + "gitVersion=" + version + set + "gitMajor=" + parts[0] + set + "gitMinor=" + parts[1]
}

// Peer is the path of Kubernetes' own kube-proxy, built if the cache does not have it. The working directory is test/e2e.
func Peer(ctx context.Context) (string, error) { return peer.binary(ctx) }

// binary is the path of the server's program, built if the cache does not have that version.
func (s server) binary(ctx context.Context) (string, error) {
	version, err := s.golang(ctx, "list", "-m", "-f", "{{.Version}}", s.module)
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
	fmt.Fprintf(os.Stderr, "building %s %s into %s: once, some minutes\n", s.name, version, path)
	// Built beside and renamed, so that nobody runs half a program.
	half := fmt.Sprintf("%s.%d", path, os.Getpid())
	defer os.Remove(half)
	if _, err := s.golang(ctx, "build", "-trimpath", "-ldflags", s.ldflags(version), "-o", half, s.main); err != nil {
		return "", err
	}
	return path, os.Rename(half, path)
}

// golang runs the go command in the servers' module.
func (s server) golang(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = "servers"
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
