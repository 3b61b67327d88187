//go:build linux

package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/seed-11a05479/kube-proxy/test/e2e"
)

// fiveSteps plays the five steps of docs/install.md from kubeadm's DaemonSet to that of build/manifests: first to a node that refuses the new
// rules, where the rollout must halt, then back, and then to the end.
func (w *world) fiveSteps() {
	shell := w.workspace()
	set := w.apply(w.printed(shape{name: "kubeadm", kubeadm: true}))
	set.Spec.Template.Spec.Containers[0].Image = upstream
	w.rollOut(set)

	page, err := os.ReadFile(filepath.Join(repository, "docs", "install.md"))
	w.must(err)
	trial, steps := commandsBelow(string(page), "## One node first"), commandsBelow(string(page), "## All nodes, in five steps")
	var try, back []string
	for _, command := range trial {
		switch {
		case strings.Contains(command, "nodeSelectorTerms/0"): // of EKS
		case len(back) > 0 || strings.Contains(command, "sed 's/mode: nftables"):
			back = append(back, command)
		default:
			try = append(try, command)
		}
	}
	if len(try) != 7 || len(back) != 6 || len(steps) != 5 {
		w.t.Fatalf("the page has other steps: %d, %d and %d blocks", len(try), len(back), len(steps))
	}
	know, compare, rest, replace, end := steps[0], steps[1], steps[2], steps[3], steps[4]

	p := w.poll()
	shell(know, 1) // of Kubernetes' own proxies
	for _, command := range try {
		shell(command, 0)
	}
	shell(compare, 0)
	release := w.refuse(1)
	if out := shell(rest, 0); !strings.Contains(out, "node2 is worse than before:\n  Failing: IPv4: the last sync failed") || strings.Contains(out, "node3 labeled") {
		w.t.Fatalf("the rollout does not halt at node2:\n%s", out)
	}
	w.runs("kube-proxy-canary", "kube-proxy-canary", "kube-proxy")
	p.end("until the rollout halts")

	p = w.poll()
	release()
	for _, command := range back {
		shell(command, 0)
	}
	shell("kubectl -n kube-system rollout status daemonset/kube-proxy", 0)
	w.runs("kube-proxy", "kube-proxy", "kube-proxy")
	for _, node := range w.lab.Nodes() { // Kubernetes' own has no startup probe
		w.eventually(node.Name+" is healthy", func() string {
			connection, err := node.Dial(w.t.Context(), "tcp", "127.0.0.1:10256")
			if err != nil {
				return err.Error()
			}
			w.must(connection.Close())
			return ""
		})
	}
	shell(compare, 0)
	p.end("back")

	p = w.poll()
	for _, command := range append(try, compare, rest) {
		shell(command, 0)
	}
	w.runs("kube-proxy-canary", "kube-proxy-canary", "kube-proxy-canary")
	w.replace()()
	shell(compare, 0)
	shell(replace, 0)
	shell(end, 0)
	w.runs("kube-proxy", "kube-proxy", "kube-proxy")
	w.onlyIn("nftables")
	shell(compare, 0)
	w.replace()()
	p.end("all five steps")
}

// workspace returns a function that runs a command of the page in bash on the machine of the API server, in a folder with the manifests of this
// cluster, and expects an exit code.
func (w *world) workspace() (shell func(command string, code int) string) {
	w.t.Helper()
	dir := w.t.TempDir()
	w.must(os.MkdirAll(filepath.Join(dir, "bin"), 0o755))                                                                  //nolint:gosec // programs
	w.must(os.CopyFS(filepath.Join(dir, "build", "manifests"), os.DirFS(filepath.Join(repository, "build", "manifests")))) //nolint:gosec // ours
	server := "https://" + w.lab.Gateway.IPv4.String() + ":6443"
	replaceIn := func(file string, pairs ...string) {
		path := filepath.Join(dir, "build", "manifests", "base", file)
		text, err := os.ReadFile(path)
		w.must(err)
		w.must(os.WriteFile(path, []byte(strings.NewReplacer(pairs...).Replace(string(text))), 0o600))
	}
	replaceIn("config.yaml", "https://control-plane.example:6443", server, "[10.244.0.0/16]", `[10.244.0.0/16, "fd00:10:244::/48"]`)
	if !whole() {
		replaceIn("daemonset.yaml", "minReadySeconds: 5", fmt.Sprint("minReadySeconds: ", hurry))
	}
	replaceIn("kustomization.yaml", "newTag: latest", "newTag: "+strings.TrimPrefix(present, "localhost/kube-proxy:"))
	kubectl, err := e2e.Program(w.t.Context(), "kubectl")
	w.must(err)
	w.must(os.Symlink(kubectl, filepath.Join(dir, "bin", "kubectl")))
	images, err := unpacked()
	w.must(err)
	// A busy machine answers later than 3 s.
	own := "#!/bin/sh\nexec " + filepath.Join(images[present], "usr", "local", "bin", "kube-proxy") + ` "$@" $([ "$1" = fleet ] && echo --request-timeout=1m)` + "\n"
	w.must(os.WriteFile(filepath.Join(dir, "bin", "kube-proxy"), []byte(own), 0o755)) //nolint:gosec // a program
	kubeconfig, err := w.api.Kubeconfig("admin")
	w.must(err)
	return func(command string, code int) string {
		w.t.Helper()
		run := w.lab.Gateway.Command("bash", "-c", command)
		run.Dir = dir
		run.Env = append(os.Environ(), "HOME="+dir, "KUBECONFIG="+kubeconfig, "PATH="+filepath.Join(dir, "bin")+":"+os.Getenv("PATH"))
		out, err := run.CombinedOutput()
		w.t.Logf("%s\n%s", command, out)
		if got := run.ProcessState.ExitCode(); got != code {
			w.t.Fatalf("exit code %d, want %d: %v", got, code, err)
		}
		return string(out)
	}
}

// refuse keeps the proxy of a node from writing its rules of IPv4: another process owns the table. The returned function ends that.
func (w *world) refuse(node int) (release func()) {
	w.t.Helper()
	owner := w.lab.Nodes()[node].Command("nft", "-i")
	in, err := owner.StdinPipe()
	w.must(err)
	w.must(owner.Start())
	_, err = fmt.Fprintln(in, "add table ip kube-proxy { flags owner; }")
	w.must(err)
	w.eventually("the table of another process", func() string {
		out, err := w.lab.Nodes()[node].Command("nft", "list", "tables").Output()
		w.must(err)
		if !strings.Contains(string(out), "table ip kube-proxy") {
			return string(out)
		}
		return ""
	})
	return func() {
		w.t.Helper()
		w.must(in.Close()) // the table ends with the process
		w.must(owner.Wait())
	}
}

// runs waits until each node runs one Pod of a proxy, of these DaemonSets.
func (w *world) runs(sets ...string) {
	w.t.Helper()
	for i, node := range w.lab.Nodes() {
		w.eventually(node.Name+" runs a Pod of "+sets[i], func() string {
			pods, err := w.client.CoreV1().Pods(namespace).List(w.t.Context(), metav1.ListOptions{LabelSelector: "k8s-app=kube-proxy", FieldSelector: "spec.nodeName=" + node.Name})
			w.must(err)
			var owners []string
			for i := range pods.Items {
				owners = append(owners, ptr.Deref(metav1.GetControllerOf(&pods.Items[i]), metav1.OwnerReference{}).Name)
			}
			if len(owners) != 1 || owners[0] != sets[i] || pods.Items[0].Status.Phase != corev1.PodRunning {
				return fmt.Sprint(owners)
			}
			return ""
		})
	}
}

var (
	heading = regexp.MustCompile(`(?m)^## `)
	block   = regexp.MustCompile("(?ms)^ *```(console|sh)\n(.*?\n) *```$")
	inline  = regexp.MustCompile("`(kubectl delete [^`]+)`")
)

// commandsBelow returns the commands below a heading of a page: each line of a console that begins with a $, each whole block of sh, and each
// command in a sentence that deletes objects.
func commandsBelow(page, below string) (all []string) {
	_, text, _ := strings.Cut(page, "\n"+below+"\n")
	text = heading.Split(text, 2)[0]
	for _, found := range block.FindAllStringSubmatch(text, -1) {
		if found[1] == "sh" {
			all = append(all, found[2])
			continue
		}
		for line := range strings.Lines(found[2]) {
			if command, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "$ "); ok {
				all = append(all, command)
			}
		}
	}
	for _, found := range inline.FindAllStringSubmatch(text, -1) {
		all = append(all, found[1])
	}
	return all
}
