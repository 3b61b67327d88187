//go:build linux

package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

var (
	//go:embed containerd.toml
	containerdConfig string
	//go:embed cni.template
	cniTemplate string
	//go:embed kubeadm.yaml
	initConfig string
	//go:embed join.yaml
	joinConfig string
	//go:embed objects.yaml
	objects string
)

// up makes the cluster, with Kubernetes' own kube-proxy.
func (w *world) up(ctx context.Context) error {
	err := all(
		command(ctx, "mount", "-t", "tmpfs", "tmpfs", "/tmp"),
		command(ctx, "ip", "link", "set", "lo", "up"),
		command(ctx, "ip", "link", "add", "segment", "up", "type", "bridge"),
		command(ctx, "ip", "address", "add", gateway4+"/24", "dev", "segment"),
		command(ctx, "ip", "address", "add", gateway6+"/64", "dev", "segment", "nodad"),
		command(ctx, "sh", "-c", "echo 0 | tee /proc/sys/net/bridge/bridge-nf-call-iptables >/proc/sys/net/bridge/bridge-nf-call-ip6tables"),
	)
	if err != nil {
		return err
	}
	refs, err := w.references(ctx)
	if err != nil {
		return err
	}
	if err := errors.Join(w.copyDocumented(), w.linkOurs()); err != nil {
		return err
	}
	for i, n := range w.nodes {
		if err := n.install(ctx, i == 0, refs); err != nil {
			return fmt.Errorf("%s: %w", n.name, err)
		}
	}
	if err := w.route(ctx); err != nil {
		return err
	}
	for _, args := range []string{
		"wait --for=condition=Ready node --all --timeout=4m", "apply -f " + w.path("objects.yaml"),
		"rollout status deployment/web --timeout=4m", "rollout status daemonset/client --timeout=4m",
		"-n kube-system rollout status deployment/coredns --timeout=4m", "-n kube-system rollout status daemonset/kube-proxy --timeout=4m",
	} {
		if _, err := w.kubectl(ctx, strings.Fields(args)...); err != nil {
			return err
		}
	}
	return w.check(ctx)
}

// copyDocumented writes the objects, and copies what the commands of the documentation name, with this cluster's addresses.
func (w *world) copyDocumented() error {
	err := os.WriteFile(w.path("objects.yaml"), []byte(objects), 0o600)
	for _, dir := range []string{"manifests", "charts"} {
		err = errors.Join(err, os.CopyFS(w.path("docs", "build", dir), os.DirFS(filepath.Join(w.repository, "build", dir))))
	}
	config := w.path("docs", "build", "manifests", "base", "config.yaml")
	text, err2 := os.ReadFile(config)
	if err := errors.Join(err, err2); err != nil {
		return err
	}
	edited := strings.NewReplacer("control-plane.example:6443", w.nodes[0].ipv4+":6443", "[10.244.0.0/16]", "[10.244.0.0/16, fd00:10:244::/56]")
	return os.WriteFile(config, []byte(edited.Replace(string(text))), 0o600)
}

// install boots a node, imports the images, and runs kubeadm.
func (n *node) install(ctx context.Context, first bool, refs map[string]string) error {
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		return err
	}
	config, verb := joinConfig, "join"
	if first {
		config, verb = initConfig, "init"
	}
	_, version, _ := strings.Cut(refs["kube-apiserver"], ":")
	for name, text := range map[string]string{"containerd/config.toml": containerdConfig, "containerd/cni.template": cniTemplate, "kubeadm.yaml": config} {
		err := n.configure(name, text, "@BIN@", n.world.path("bin"), "@PAUSE@", refs["pause"], "@NAME@", n.name, "@VERSION@", version,
			"@IPV4@", n.ipv4, "@IPV6@", n.ipv6, "@SERVER@", n.world.nodes[0].ipv4, "@FILES@", strconv.FormatUint(files.Max, 10))
		if err != nil {
			return err
		}
	}
	if err := n.boot(ctx); err != nil {
		return err
	}
	images, err := filepath.Glob(n.world.path("images", "*.tar"))
	if err != nil {
		return err
	}
	for _, image := range append(images, filepath.Join(n.world.repository, "bin", "image", "kube-proxy.oci.tar")) {
		if !first && slices.Contains(controlPlane, strings.TrimSuffix(filepath.Base(image), ".tar")) {
			continue
		}
		if err := all(n.command(ctx, "ctr", "-n", "k8s.io", "images", "import", image)); err != nil {
			return err
		}
	}
	_, err = output(n.command(ctx, "kubeadm", verb, "--config", "/etc/kubeadm.yaml", "--ignore-preflight-errors=SystemVerification"))
	return err
}

// route adds routes to the other node's pods.
func (w *world) route(ctx context.Context) error {
	for i, n := range w.nodes {
		var ranges string
		err := eventually(ctx, func() (err error) {
			ranges, err = w.kubectl(ctx, "get", "node", n.name, "-o", "jsonpath={.spec.podCIDRs[*]}")
			if err == nil && len(strings.Fields(ranges)) != 2 {
				err = fmt.Errorf("%s has the ranges %q for pods", n.name, ranges)
			}
			return err
		})
		if err != nil {
			return err
		}
		for r := range strings.FieldsSeq(ranges) {
			via := n.ipv4
			if strings.Contains(r, ":") {
				via = n.ipv6
			}
			if err := all(w.nodes[1-i].command(ctx, "ip", "route", "replace", r, "via", via)); err != nil {
				return err
			}
		}
	}
	return nil
}
