package docs

// row names the test that runs the commands of a page that begin with command, or why none does.
type row struct{ page, command, test, why string }

// commandTable lists the commands of all pages. The first row that matches applies.
func commandTable() []row {
	const (
		human   = "it is for a look at a cluster or node, and TestCommandsOfPagesParse checks flags of kube-proxy in it"
		packets = "make test runs all cases of both backends, and this one among them"
		large   = "it takes an hour and its result is on the page; TestKernelBench runs a small one"
		manual  = "it is a step of the exercise; TestExercise checks that what it changes is there"
	)
	return []row{
		{"README.md", "make", "", "CI runs the same targets (.ci/run); TestTargets checks their names"},
		{"README.md", "bin/kube-proxy --config", "TestKernelDaemonSet", ""},
		{"README.md", "bin/kube-proxy check", "TestKernelCheckBefore", ""},
		{"README.md", "bin/kube-proxy service", "TestKernelInspect", ""},
		{"CONTRIBUTING.md", "make", "", "CI runs the same targets (.ci/run); TestTargets checks their names"},
		{"CONTRIBUTING.md", "sed", "", manual},
		{"CONTRIBUTING.md", "go test ./test/cases", "", manual},
		{"CONTRIBUTING.md", "git", "", manual},
		{"CONTRIBUTING.md", "CI=true", "", packets},
		{"build/manifests/README.md", "kubectl -n kube-system set image", "TestKernelInstallPage", ""},
		{"build/manifests/README.md", "kubectl -n kube-system rollout", "", "there is no kubelet that could roll it out; TestKernelCluster replaces pods itself"},
		{"docs/api.md", "curl", "", "the commands that TestKernelInspect runs ask the same"},
		{"docs/api.md", "kubectl", "", human},
		{"docs/events.md", "kubectl", "", human},
		{"docs/external-ips.md", "kube-proxy audit", "TestAuditOutputs", ""},
		{"docs/external-ips.md", "kubectl get", "", "it reads standard input; TestAuditOutputs reads files in its place"},
		{"docs/external-ips.md", "kubectl patch", "", "a cluster's administrator decides about the address; the field is that of TestKernelProxyAndServer"},
		{"docs/install.md", "kube-proxy check --pre", "TestKernelCheckBefore", ""},
		{"docs/install.md", "kube-proxy check", "TestKernelCheckAfter", ""},
		{"docs/install.md", "kube-proxy service", "TestKernelInspect", ""},
		{"docs/install.md", "", "TestKernelInstallPage", ""},
		{"docs/reading-the-rules.md", "kube-proxy render", "TestKernelInspect", ""},
		{"docs/reading-the-rules.md", "", "TestKernelListedByOtherReleases", ""},
		{"docs/scale.md", "", "", large},
		{"docs/status-page.md", "", "", human},
		{"docs/troubleshooting-node.md", "kube-proxy check --pre", "TestKernelCheckBefore", ""},
		{"docs/troubleshooting-node.md", "kube-proxy check", "TestKernelCheckAfter", ""},
		{"docs/troubleshooting-node.md", "kubectl", "", human},
		{"docs/troubleshooting.md", "kubectl", "", human},
		{"docs/troubleshooting.md", "", "TestDocsTroubleshooting", ""},
		{"examples/README.md", "make build", "", "CI runs the same targets (.ci/run); TestTargets checks their names"},
		{"examples/README.md", "bin/kube-proxy", "", "make demo runs it, with addresses of its own for health and metrics"},
		{"pkg/proxy/backend/iptables/README.md", "", "", human},
		{"pkg/proxy/backend/nftables/README.md", "", "", human},
	}
}
