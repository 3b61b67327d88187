//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// step is a part of the run; those after the first need the cluster, and leave Kubernetes' kube-proxy or ours as kubeadm's DaemonSet.
type step struct {
	name string
	run  func(context.Context) error
}

// steps returns the first step and those whose names match.
func (w *world) steps(only string) ([]step, error) {
	match, err := regexp.Compile(only)
	if err != nil {
		return nil, fmt.Errorf("-only: %w", err)
	}
	all := []step{
		{"kubeadm: our image in its DaemonSet", w.setImage(true)},
		{"kubeadm: back to Kubernetes' kube-proxy", w.setImage(false)},
		{"manifests, iptables mode, over kubeadm's objects", w.apply("iptables")},
		{"manifests, nftables mode", w.apply("nftables")},
		{"restart of the DaemonSet", w.restart},
		{"commands by kubectl exec and port-forward", w.commands},
		{"drain and reboot of a node", w.reboot},
		{"manifests: back to Kubernetes' kube-proxy through iptables mode", w.unapply},
		{"chart, and back", w.chart},
	}
	all = slices.DeleteFunc(all, func(s step) bool { return !match.MatchString(s.name) })
	return append([]step{{"a cluster of two nodes by kubeadm", w.up}}, all...), nil
}

// rollout waits until all nodes have the DaemonSet's pods.
func (w *world) rollout(ctx context.Context) error {
	_, err := w.kubectl(ctx, "-n", "kube-system", "rollout", "status", "daemonset/kube-proxy", "--timeout=4m")
	return err
}

// runs checks which kube-proxy a pod of the DaemonSet runs: only ours has commands.
func (w *world) runs(ctx context.Context, ours bool) error {
	_, err := w.kubectl(ctx, "-n", "kube-system", "exec", "daemonset/kube-proxy", "--", "kube-proxy", "service", "list", "-A")
	if (err == nil) != ours {
		return errors.Join(errors.New("not the expected kube-proxy runs"), err)
	}
	return nil
}

// setImage replaces the image of the DaemonSet by ours, or by Kubernetes'.
func (w *world) setImage(ours bool) func(context.Context) error {
	return func(ctx context.Context) error {
		refs, err := w.references(ctx)
		if err != nil {
			return err
		}
		ref := refs["kube-proxy"]
		if ours {
			ref = ourImage
		}
		return w.under(ctx, nil, func() error {
			if _, err := w.kubectl(ctx, "-n", "kube-system", "set", "image", "daemonset/kube-proxy", "kube-proxy="+ref); err != nil {
				return err
			}
			return errors.Join(w.rollout(ctx), w.runs(ctx, ours))
		})
	}
}

// apply applies an overlay of the manifests.
func (w *world) apply(overlay string) func(context.Context) error {
	return func(ctx context.Context) error {
		dir := w.path("manifests")
		if err := errors.Join(os.RemoveAll(dir), os.CopyFS(dir, os.DirFS(filepath.Join(w.repository, "build", "manifests")))); err != nil {
			return err
		}
		config := filepath.Join(dir, "base", "config.yaml")
		text, err := os.ReadFile(config)
		if err != nil {
			return err
		}
		edited := strings.NewReplacer("control-plane.example:6443", w.nodes[0].ipv4+":6443",
			"[10.244.0.0/16]", "[10.244.0.0/16, fd00:10:244::/56]").Replace(string(text))
		if err := os.WriteFile(config, []byte(edited), 0o600); err != nil {
			return err
		}
		return w.under(ctx, nil, func() error {
			if _, err := w.kubectl(ctx, "apply", "-k", filepath.Join(dir, "overlays", overlay)); err != nil {
				return err
			}
			return errors.Join(w.rollout(ctx), w.runs(ctx, true))
		})
	}
}

// restart is a rolling update.
func (w *world) restart(ctx context.Context) error {
	return w.under(ctx, nil, func() error {
		if _, err := w.kubectl(ctx, "-n", "kube-system", "rollout", "restart", "daemonset/kube-proxy"); err != nil {
			return err
		}
		return w.rollout(ctx)
	})
}

// commands runs what docs/commands.md and docs/status-page.md say.
func (w *world) commands(ctx context.Context) error {
	for _, c := range []struct{ args, want string }{
		{"kube-proxy --version", "Kubernetes v"},
		{"kube-proxy service list -A", "default/web"},
		{"kube-proxy check --config /var/lib/kube-proxy/config.conf --wait 1m", "ok"},
		{"kube-proxy explain default/web", "10.96.0.100"},
	} {
		args := append([]string{"-n", "kube-system", "exec", "daemonset/kube-proxy", "--"}, strings.Fields(c.args)...)
		text, err := w.kubectl(ctx, args...)
		if err == nil && !strings.Contains(text, c.want) {
			err = fmt.Errorf("%s: %q is not in %s", c.args, c.want, text)
		}
		if err != nil {
			return err
		}
	}
	pods, err := w.pods(ctx, "kube-system", "k8s-app=kube-proxy")
	if err != nil {
		return err
	}
	forward := command(ctx, "kubectl", "-n", "kube-system", "port-forward", "pod/"+pods[0].name, "10249")
	if err := forward.Start(); err != nil {
		return err
	}
	err = eventually(ctx, func() error {
		page, err := http.Get("http://localhost:10249/")
		if err != nil {
			return err
		}
		defer page.Body.Close()
		text, err := io.ReadAll(page.Body)
		if err == nil && !strings.Contains(string(text), "kube-proxy") {
			err = fmt.Errorf("the status page is %s: %s", page.Status, text)
		}
		return err
	})
	err = errors.Join(err, forward.Process.Kill())
	_ = forward.Wait() // it says that it was killed
	return err
}

// reboot drains the second node, ends all that runs on it at once, and starts it again.
func (w *world) reboot(ctx context.Context) error {
	n := w.nodes[1]
	err := w.under(ctx, n, func() error {
		if _, err := w.kubectl(ctx, "drain", n.name, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=4m"); err != nil {
			return err
		}
		if err := n.crash(ctx); err != nil {
			return err
		}
		if err := n.boot(ctx); err != nil {
			return err
		}
		return w.route(ctx)
	})
	if err != nil {
		return err
	}
	for _, args := range [][]string{
		{"uncordon", n.name}, {"rollout", "restart", "deployment/web"},
		{"rollout", "status", "deployment/web", "--timeout=4m"}, {"rollout", "status", "daemonset/client", "--timeout=4m"},
	} {
		if _, err := w.kubectl(ctx, args...); err != nil {
			return err
		}
	}
	return errors.Join(w.rollout(ctx), w.check(ctx))
}

// kubeadmsProxy makes kubeadm's own objects again, as docs/install.md says.
func (w *world) kubeadmsProxy(ctx context.Context) error {
	n := w.nodes[0]
	_, err := output(n.command(ctx, "sh", "-ec", `export KUBECONFIG=/etc/kubernetes/admin.conf
kubectl -n kube-system get configmap kubeadm-config -o jsonpath='{.data.ClusterConfiguration}' >/tmp/cluster.yaml
kubeadm init phase addon kube-proxy --kubeconfig /etc/kubernetes/admin.conf --config /tmp/cluster.yaml`))
	return errors.Join(err, w.rollout(ctx), w.runs(ctx, false))
}

// unapply goes back from the manifests.
func (w *world) unapply(ctx context.Context) error {
	if err := w.apply("iptables")(ctx); err != nil {
		return err
	}
	return w.under(ctx, nil, func() error {
		if _, err := w.kubectl(ctx, "delete", "-k", w.path("manifests", "overlays", "iptables")); err != nil {
			return err
		}
		return w.kubeadmsProxy(ctx)
	})
}

// chart installs the chart in place of kubeadm's objects, and uninstalls it.
func (w *world) chart(ctx context.Context) error {
	err := w.under(ctx, nil, func() error {
		err := all(
			command(ctx, "kubectl", "-n", "kube-system", "delete", "daemonset/kube-proxy", "configmap/kube-proxy", "serviceaccount/kube-proxy"),
			command(ctx, "helm", "install", "kube-proxy", filepath.Join(w.repository, "build", "charts", "kube-proxy"), "-n", "kube-system",
				"--set", "apiServer=https://"+w.nodes[0].ipv4+":6443", "--set", "config.detectLocal.clusterCIDRs={10.244.0.0/16,fd00:10:244::/56}"),
		)
		return errors.Join(err, w.rollout(ctx), w.runs(ctx, true))
	})
	if err != nil {
		return err
	}
	return w.under(ctx, nil, func() error {
		if err := all(command(ctx, "helm", "uninstall", "kube-proxy", "-n", "kube-system")); err != nil {
			return err
		}
		return w.kubeadmsProxy(ctx)
	})
}
