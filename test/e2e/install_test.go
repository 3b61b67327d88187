//go:build linux

package e2e

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// elsewhere are the commands of docs/install.md, or their beginnings, that cannot run here, and why.
func elsewhere() map[string]string {
	const kubelet = "the lab has no kubelet, and so no pods"
	return map[string]string{
		"make image": "TestImage of build/image runs it",
		"ctr ":       "there is no container engine",
		"kind ":      "there is no container engine",
		"kops ":      "there is no cluster of kops",
		"aws ":       "there is no account",
		"kubeadm ":   "it needs a control plane made by kubeadm",
		"kubectl -n kube-system get configmap kubeadm-config": "it needs a control plane made by kubeadm",
		"helm ":                                  "the chart's own tests render it with Helm's library",
		"systemctl ":                             "k3s is not installed",
		"printf 'dis":                            "k3s is not installed",
		"kubectl -n kube-system rollout status ": kubelet,
		"kubectl -n kube-system wait ":           kubelet,
		"kubectl -n kube-system logs ":           kubelet,
		"kubectl -n kube-system exec ":           kubelet,
		patchOwnAffinity:                         "TestKernelCanaryPage runs it on a DaemonSet that has an affinity",
	}
}

// TestKernelInstallPage runs the commands of docs/install.md, as root on a node, each section in one shell and against a
// cluster with kubeadm's kube-proxy.
func TestKernelInstallPage(t *testing.T) {
	t.Parallel()
	netns.Require(t, "nft", "curl", "bash")
	page, err := os.ReadFile("../../docs/install.md")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute) // the servers may have to be built
	defer cancel()
	client, err := kubectl.binary(ctx)
	if err != nil {
		t.Fatal(err)
	}
	proxy := program(t)
	lab := netns.Start(t, netns.Options{})
	cluster, err := StartCluster(ctx, lab.Node1.Host, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig, err := cluster.Kubeconfig("admin")
	if err != nil {
		t.Fatal(err)
	}
	before, err := filepath.Abs("testdata/kubeadm.yaml")
	if err != nil {
		t.Fatal(err)
	}
	unused, ran := elsewhere(), 0
	for _, s := range commands(string(page)) {
		t.Run(s.heading, func(t *testing.T) {
			script := "set -e\nkubectl apply --server-side --force-conflicts -f " + before + "\nset -x\n"
			here := 0
			for _, command := range s.commands {
				if known := prefix(elsewhere(), command); known != "" {
					delete(unused, known)
					t.Logf("not run, because %s: %s", elsewhere()[known], command)
					continue
				}
				script += command + "\n"
				here++
			}
			if ran += here; here == 0 {
				return
			}
			dir := workspace(t, map[string]string{"kubectl": client, "kube-proxy": proxy})
			shell := lab.Node1.Command("bash", "-c", script)
			shell.Dir = dir
			shell.Env = append(os.Environ(), "HOME="+dir, "KUBECONFIG="+kubeconfig, "PATH="+dir+"/bin:"+os.Getenv("PATH"))
			var out strings.Builder
			shell.Stdout, shell.Stderr = &out, &out
			if err := shell.Start(); err != nil {
				t.Fatal(err)
			}
			impatience := time.AfterFunc(5*time.Minute, func() { _ = shell.Kill() })
			defer impatience.Stop()
			if err := shell.Wait(); err != nil {
				log, _ := os.ReadFile(filepath.Join(dir, "kube-proxy.log"))
				t.Fatalf("%v:\n%s\n%s", err, &out, log)
			}
			t.Logf("%s", &out)
		})
	}
	for command, why := range unused {
		t.Errorf("the page has no command %q (%s)", command, why)
	}
	if ran < 15 {
		t.Errorf("ran %d commands, want at least 15", ran)
	}
}

// prefix returns the key that a command begins with, or "".
func prefix(known map[string]string, command string) string {
	for key := range known {
		if strings.HasPrefix(command, key) {
			return key
		}
	}
	return ""
}

// program returns the path of bin/kube-proxy.
func program(t *testing.T) string {
	t.Helper()
	binary, err := filepath.Abs("../../bin/kube-proxy")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(binary); err != nil {
		t.Fatalf("%v; run make build first", err)
	}
	return binary
}

// workspace makes a folder with what the page refers to in the repository, and programs in bin.
func workspace(t *testing.T, programs map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "bin"), 0o755); err != nil { //nolint:gosec // programs
		t.Fatal(err)
	}
	links := map[string]string{}
	for _, name := range []string{"build", "examples"} {
		target, err := filepath.Abs(filepath.Join("../..", name))
		if err != nil {
			t.Fatal(err)
		}
		links[name] = target
	}
	for name, target := range programs {
		links[filepath.Join("bin", name)] = target
	}
	for name, target := range links {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
