//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// trial returns the steps that move a node, and then all, by labels as docs/install.md says: first back at once when a node is worse than
// before, then to the end.
func (w *world) trial() ([]step, error) {
	page, err := os.ReadFile(filepath.Join(w.repository, "docs", "install.md"))
	if err != nil {
		return nil, err
	}
	_, text, _ := strings.Cut(string(page), "\n## All nodes, in five steps\n")
	text, _, _ = strings.Cut(text, "\n## ")
	found := regexp.MustCompile("(?s)```sh\n(.*?)\n *```").FindAllStringSubmatch(text, -1)
	if len(found) != 4 {
		return nil, fmt.Errorf("docs/install.md has %d scripts in five steps in place of 4", len(found))
	}
	before, compare, label, unlabel := strings.Split(found[0][1], "\n"), found[1][1], found[2][1], found[3][1]
	for i := range before {
		before[i] += orFindings
	}
	affinity := `{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"kube-proxy/canary","operator":"NotIn","values":["true"]}]}]}}}`
	const patch = "kubectl -n kube-system patch daemonset kube-proxy --type=json -p '"
	begin := []string{
		patch + `[{"op":"test","path":"/spec/template/spec/affinity","value":null},{"op":"add","path":"/spec/template/spec/affinity","value":` + affinity + `}]'`,
		rollout,
		"kubectl apply --dry-run=server -k build/manifests/overlays/canary",
		"kubectl apply -k build/manifests/overlays/canary",
		"kubectl label node node1 kube-proxy/canary=true",
		"kubectl -n kube-system wait --for=jsonpath='{.status.numberAvailable}'=1 daemonset/kube-proxy-canary --timeout=5m",
		"kubectl -n kube-system get pods -l k8s-app=kube-proxy --field-selector spec.nodeName=node1 | grep 'canary.*1/1'",
		compare,
		"kube-proxy fleet | grep '1 OK, 1 Foreign'",
	}
	return []step{
		{name: "canary, before", commands: before},
		{name: "canary on a node", commands: begin},
		{name: "canary, the next node is worse", run: func(ctx context.Context) error { return w.worse(ctx, label, compare) }},
		{name: "canary, end of the trial", commands: []string{
			"kubectl -n kube-system get configmap kube-proxy-canary -o yaml | sed 's/mode: nftables/mode: iptables/' | kubectl replace -f -",
			"kubectl -n kube-system rollout restart daemonset/kube-proxy-canary",
			rollout + "-canary",
			"kubectl label nodes --all kube-proxy/canary-",
			"kubectl delete -k build/manifests/overlays/canary",
			patch + `[{"op":"test","path":"/spec/template/spec/affinity","value":` + affinity + `},{"op":"remove","path":"/spec/template/spec/affinity"}]'`,
		}},
		{name: "canary on all nodes", ours: true, commands: slices.Concat(begin, []string{label, "kube-proxy fleet | grep '2 OK'"})},
		{name: "canary, the manifests follow", ours: true, commands: []string{
			unlabel, "kubectl delete -k build/manifests/overlays/canary", "kube-proxy fleet | grep '2 OK'"}},
		{name: "canary, back", commands: []string{applyIPTables, rollout, saveConfig, deleteIPTables, kubeadmsOwn}},
	}, nil
}

// worse runs the loop that labels the other nodes, while the proxy of the second one cannot be asked: it halts there, and not once that is
// repaired.
func (w *world) worse(ctx context.Context, loop, compare string) error {
	return w.under(ctx, nil, func() error {
		rule := strings.Fields("INPUT -i lo -p tcp --dport 10249 -j REJECT")
		if err := all(w.nodes[1].command(ctx, "iptables", append([]string{"-I"}, rule...)...)); err != nil {
			return err
		}
		text, err := w.documented(ctx, loop)
		if err == nil && !strings.Contains(text, "node2 is worse than before") {
			err = fmt.Errorf("the loop does not halt:\n%s", text)
		}
		if err := errors.Join(err, all(w.nodes[1].command(ctx, "iptables", append([]string{"-D"}, rule...)...))); err != nil {
			return err
		}
		_, err = w.documented(ctx, compare)
		return err
	})
}
