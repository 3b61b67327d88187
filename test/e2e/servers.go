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
	// ldflags returns the linker flags for a version such as v1.37.2.
	ldflags func(version string) string
}

var (
	etcdServer = server{name: "etcd", module: "go.etcd.io/etcd/server/v3", main: "go.etcd.io/etcd/server/v3",
		ldflags: func(string) string { return "-s -w" }}
	apiServer = server{name: "kube-apiserver", module: "k8s.io/kubernetes", main: "k8s.io/kubernetes/cmd/kube-apiserver", ldflags: ofKubernetes}
	// kubectl runs the commands of docs/install.md.
	kubectl = server{name: "kubectl", module: "k8s.io/kubernetes", main: "k8s.io/kubernetes/cmd/kubectl", ldflags: ofKubernetes}
	manager = server{name: "kube-controller-manager", module: "k8s.io/kubernetes", main: "k8s.io/kubernetes/cmd/kube-controller-manager",
		ldflags: ofKubernetes}
	// peer is the program that test/bench compares with ours, and that test/cluster takes over from.
	peer = server{name: "kube-proxy", module: "k8s.io/kubernetes", main: "k8s.io/kubernetes/cmd/kube-proxy", ldflags: ofKubernetes}
	// kubeadm prints the objects of Kubernetes' own kube-proxy.
	kubeadm = server{name: "kubeadm", module: "k8s.io/kubernetes", main: "k8s.io/kubernetes/cmd/kubeadm", ldflags: ofKubernetes}
)

// ofKubernetes returns the linker flags that set the version of a Kubernetes program.
func ofKubernetes(version string) string {
	const set = " -X k8s.io/component-base/version."
	parts := strings.Split(strings.TrimPrefix(version, "v"), ".")
	return "-s -w" + set + "gitVersion=" + version + set + "gitMajor=" + parts[0] + set + "gitMinor=" + parts[1]
}

// Peer returns the path of Kubernetes' own kube-proxy and builds it if it is not cached. The working directory must be in
// this module or in one that requires it.
func Peer(ctx context.Context) (string, error) { return peer.binary(ctx) }

// Kubeadm returns the path of kubeadm, as [Peer] does.
func Kubeadm(ctx context.Context) (string, error) { return kubeadm.binary(ctx) }

// binary returns the path of the server's program and builds it if that version is not cached.
func (s server) binary(ctx context.Context) (string, error) {
	if own := os.Getenv("KUBE_APISERVER"); own != "" && s.name == apiServer.name {
		return own, nil
	}
	dir, err := s.golang(ctx, ".", "list", "-m", "-f", "{{.Dir}}", "github.com/seed-11a05479/kube-proxy/test/e2e")
	if err != nil {
		return "", err
	}
	dir = filepath.Join(dir, "servers")
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
