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

// step is a part of the run. Before it and after it every node has a kube-proxy.
type step struct {
	name string
	// commands are lines of the pages in docs, in which overlays/iptables may be written for overlays/nftables.
	commands []string
	// run is done in place of commands.
	run func(context.Context) error
	// ours says whether the pods of the DaemonSet kube-proxy, or those with its labels, are ours afterwards, and not Kubernetes'.
	ours bool
}

const (
	setImage       = "kubectl -n kube-system set image daemonset/kube-proxy kube-proxy="
	rollout        = "kubectl -n kube-system rollout status daemonset/kube-proxy"
	saveConfig     = "kubectl -n kube-system get configmap kubeadm-config -o jsonpath='{.data.ClusterConfiguration}' > cluster.yaml"
	applyIPTables  = "kubectl apply -k build/manifests/overlays/iptables"
	deleteIPTables = "kubectl delete -k build/manifests/overlays/iptables"
	// orFindings follows a command that may exit with 1.
	orFindings  = " || [ $? = 1 ]"
	kubeadmsOwn = "kubeadm init phase addon kube-proxy --kubeconfig /etc/kubernetes/admin.conf --config cluster.yaml"
)

// steps returns the first step and those whose names match.
func (w *world) steps(only string) ([]step, error) {
	trial, err := w.trial()
	if err != nil {
		return nil, err
	}
	all := slices.Concat([]step{
		{name: "before", commands: []string{
			"kubectl -n kube-system get configmap kube-proxy -o jsonpath='{.data.config\\.conf}' > config.conf",
			"kube-proxy config validate config.conf",
			"kube-proxy audit",
			"kubectl -n kube-system get daemonset kube-proxy -o yaml > before.yaml",
			"kube-proxy check --pre --config config.conf --skip api",
		}},
		{name: "kubeadm", ours: true, commands: []string{setImage + "registry.example/kube-proxy:v0.2.0", rollout}},
		{name: "kubeadm, back", commands: []string{setImage + "registry.k8s.io/kube-proxy:v1.37.2"}},
	}, trial, []step{
		{name: "manifests", ours: true, commands: []string{
			"kubectl apply --dry-run=server -k build/manifests/overlays/iptables", applyIPTables}},
		{name: "manifests, nftables mode", ours: true, commands: []string{"kubectl apply -k build/manifests/overlays/nftables"}},
		{name: "restart", ours: true, commands: []string{"kubectl -n kube-system rollout restart daemonset/kube-proxy"}},
		{name: "commands", ours: true, commands: []string{
			"kubectl -n kube-system exec daemonset/kube-proxy -- kube-proxy --version",
			"kubectl -n kube-system exec $pod -- kube-proxy service list -A | grep web",
			"kubectl -n kube-system exec $pod -- kube-proxy check --config /var/lib/kube-proxy/config.conf --wait 1m",
		}},
		{name: "commands, more", run: w.commands},
		{name: "port-forward", run: w.portForward},
		{name: "fleet", run: w.fleet},
		{name: "drain and reboot", run: func(ctx context.Context) error { return w.reboot(ctx, func() error { return nil }) }},
		{name: "startup taint", run: w.startupTaint},
		{name: "specs, nftables mode", run: func(ctx context.Context) error { return w.specs(ctx, "nftables") }},
		{name: "specs, iptables mode", run: func(ctx context.Context) error { return w.specs(ctx, "iptables") }},
		{name: "manifests, back to iptables mode", ours: true, commands: []string{applyIPTables}},
		{name: "manifests, back", commands: []string{saveConfig, deleteIPTables, kubeadmsOwn}},
		{name: "chart", ours: true, commands: []string{
			"kubectl -n kube-system delete daemonset/kube-proxy configmap/kube-proxy serviceaccount/kube-proxy",
			"helm install kube-proxy build/charts/kube-proxy -n kube-system --set apiServer=https://10.0.0.1:6443 --set config.detectLocal.clusterCIDRs={10.244.0.0/16}",
		}},
		{name: "chart, startup taint", run: w.chartsTaint},
		{name: "chart, back", commands: []string{saveConfig, "helm uninstall kube-proxy -n kube-system", kubeadmsOwn}},
	})
	if err := w.compareWithPages(all); err != nil {
		return nil, err
	}
	match, err := regexp.Compile(only)
	if err != nil {
		return nil, fmt.Errorf("-only: %w", err)
	}
	all = slices.DeleteFunc(all, func(s step) bool { return !match.MatchString(s.name) })
	return append([]step{{name: "a cluster of two nodes by kubeadm", run: w.up}}, all...), nil
}

// compareWithPages returns an error for each command that no page has.
func (w *world) compareWithPages(steps []step) error {
	files, err := filepath.Glob(filepath.Join(w.repository, "docs", "*.md"))
	var pages []byte
	for _, file := range files {
		text, err2 := os.ReadFile(file)
		pages, err = append(pages, text...), errors.Join(err, err2)
	}
	for _, s := range steps {
		for _, command := range s.commands {
			command, _, _ = strings.Cut(command, " | grep ")
			command, _, _ = strings.Cut(command, orFindings)
			if !strings.Contains(string(pages), strings.Replace(command, "overlays/iptables", "overlays/nftables", 1)) {
				err = errors.Join(err, fmt.Errorf("docs has no command %q any more", command))
			}
		}
	}
	return err
}

// documented runs commands of the documentation on the first node, with the names of this cluster, and returns what they print.
func (w *world) documented(ctx context.Context, commands ...string) (string, error) {
	names := strings.NewReplacer("registry.example/kube-proxy:v0.2.0", ourImage, "10.0.0.1:6443", w.nodes[0].ipv4+":6443",
		"{10.244.0.0/16}", "{10.244.0.0/16,fd00:10:244::/56}")
	script := "cd " + w.path("docs") + "\nPATH=" + w.path("ours") + ":$PATH\npod=daemonset/kube-proxy\n" + names.Replace(strings.Join(commands, "\n"))
	return output(w.nodes[0].command(ctx, "sh", "-exc", script))
}

// do runs the step while connections are made everywhere.
func (s step) do(ctx context.Context, w *world) error {
	if s.run != nil {
		return s.run(ctx)
	}
	return w.under(ctx, nil, func() error {
		if _, err := w.documented(ctx, append(s.commands, rollout+" --timeout=4m")...); err != nil {
			return err
		}
		// Only ours has commands.
		_, err := w.kubectl(ctx, "-n", "kube-system", "exec", "daemonset/kube-proxy", "--", "kube-proxy", "service", "list", "-A")
		if (err == nil) != s.ours {
			return errors.Join(errors.New("not the expected kube-proxy runs"), err)
		}
		return nil
	})
}

// commands asks what an operator asked when no command answered.
func (w *world) commands(ctx context.Context) error {
	return w.askAll(ctx, os.Getenv("KUBECONFIG"),
		question{"! kubectl get events -A --field-selector reportingComponent=kube-proxy | grep FailedToStart", 0, ""},
		question{"kubectl kustomize build/manifests/overlays/nftables | kube-proxy config validate -", 0, ""},
		question{"pod=$(kubectl get pods -l app=web -o name | head -n 1) && " +
			"kubectl -n kube-system exec daemonset/kube-proxy -- kube-proxy explain default/web --from default/${pod#pod/}", 0, "10.96.0.100:80/TCP"},
	)
}

// portForward opens the status page as docs/status-page.md says.
func (w *world) portForward(ctx context.Context) error {
	pods, err := w.pods(ctx, "kube-system", "k8s-app=kube-proxy")
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	if err := command(ctx, "kubectl", "-n", "kube-system", "port-forward", "pod/"+pods[0].name, "10249").Start(); err != nil {
		return err
	}
	return eventually(ctx, func() error {
		page, err := http.Get("http://localhost:10249/")
		if err != nil {
			return err
		}
		defer page.Body.Close()
		text, err := io.ReadAll(page.Body)
		if err == nil && !strings.Contains(string(text), "<title>") {
			err = fmt.Errorf("the status page is %s: %s", page.Status, text)
		}
		return err
	})
}

// reboot drains the second node, ends all that runs on it at once, and starts it again, after a change to it while it is down.
func (w *world) reboot(ctx context.Context, change func() error) error {
	n := w.nodes[1]
	err := w.under(ctx, n, func() error {
		_, err := w.kubectl(ctx, "drain", n.name, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=4m")
		if err == nil {
			err = n.crash(ctx)
		}
		if err == nil {
			err = change()
		}
		if err == nil {
			err = n.boot(ctx)
		}
		if err == nil {
			err = w.route(ctx)
		}
		return err
	})
	if err != nil {
		return err
	}
	if _, err := w.kubectl(ctx, "uncordon", n.name); err != nil {
		return err
	}
	if err := w.untainted(ctx, n); err != nil {
		return err
	}
	for _, args := range []string{"rollout restart deployment/web", "rollout status deployment/web --timeout=4m", "rollout status daemonset/client --timeout=4m"} {
		if _, err := w.kubectl(ctx, strings.Fields(args)...); err != nil {
			return err
		}
	}
	return w.check(ctx)
}
