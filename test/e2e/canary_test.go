//go:build linux

package e2e

import (
	"context"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// A node affinity in the shape of EKS', and the beginning of the command for a DaemonSet that has one.
const (
	ownAffinity = `{"spec":{"template":{"spec":{"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":` +
		`[{"matchExpressions":[{"key":"compute-type","operator":"NotIn","values":["fargate"]}]}]}}}}}}}`
	patchOwnAffinity = `kubectl -n kube-system patch daemonset kube-proxy --type=json -p '[{"op":"add"`
)

// trial is a cluster with kubeadm's DaemonSet and the real DaemonSet controller, which creates a pod for each node that a
// DaemonSet may use. Nothing runs them.
type trial struct {
	*testing.T
	cluster *Cluster
	run     func(script string) (string, error)
}

// TestKernelCanaryPage runs the commands of docs/install.md that try the proxy on one node, and looks at each node's pods: the
// DaemonSet that is already there must leave the node, because two proxies on a node answer each other's probes.
func TestKernelCanaryPage(t *testing.T) {
	t.Parallel()
	netns.Require(t, "bash")
	page, err := os.ReadFile("../../docs/install.md")
	if err != nil {
		t.Fatal(err)
	}
	var begin, end []string // the trial's commands, and those that end it
	own := ""
	for _, s := range commands(string(page)) {
		for _, command := range s.commands {
			switch {
			case !strings.Contains(command, "canary") || strings.Contains(command, " rollout ") || strings.Contains(command, " wait "): // no kubelet
			case strings.HasPrefix(command, patchOwnAffinity):
				own = command
			case len(end) > 0 || strings.HasSuffix(command, "kube-proxy/canary-"):
				end = append(end, command)
			default:
				begin = append(begin, strings.ReplaceAll(command, "--dry-run=server ", ""))
			}
		}
	}
	w := startTrial(t)
	both := map[string][]string{"node1": {"kube-proxy"}, "node2": {"kube-proxy"}}
	canary := map[string][]string{"node1": {"kube-proxy-canary"}, "node2": {"kube-proxy"}}
	w.want("before the trial", both)
	w.must("kubectl label node node1 kube-proxy/canary=true", "kubectl apply -k build/manifests/overlays/canary")
	w.want("with no patch, the canary's pod is pending", both)
	w.must("kubectl label node node1 kube-proxy/canary-")
	w.must(begin...)
	w.want("with node1 labelled", canary)
	w.must(end...)
	w.want("after the trial", both)
	if set := w.daemonSet(); set.Affinity != nil {
		t.Errorf("an affinity is left: %v", set.Affinity)
	}

	// A DaemonSet with an affinity keeps it: the first patch is refused, and the other one adds to it.
	if own == "" || len(begin) == 0 {
		t.Fatalf("the page has no command that begins with %s", patchOwnAffinity)
	}
	w.must("kubectl -n kube-system patch daemonset kube-proxy -p '"+ownAffinity+"'", "kubectl label node node2 compute-type=fargate")
	if out, err := w.run(begin[0]); err == nil {
		t.Errorf("the patch for a DaemonSet without an affinity replaces one: %s", out)
	}
	w.must(own)
	w.must(begin[1:]...)
	w.want("with an affinity", map[string][]string{"node1": {"kube-proxy-canary"}})
	if out, err := w.run(end[len(end)-1]); err == nil {
		t.Errorf("the last command removes an affinity that the page did not add: %s", out)
	}
}

// startTrial starts the cluster, with nodes node1 and node2.
func startTrial(t *testing.T) *trial {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute) // the servers may have to be built
	t.Cleanup(cancel)
	client, err := kubectl.binary(ctx)
	if err != nil {
		t.Fatal(err)
	}
	lab := netns.Start(t, netns.Options{})
	cluster, err := StartCluster(ctx, lab.Node1.Host, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := cluster.StartManager(ctx); err != nil {
		t.Fatal(err)
	}
	kubeconfig, err := cluster.Kubeconfig("admin")
	if err != nil {
		t.Fatal(err)
	}
	fixture, err := filepath.Abs("testdata/kubeadm.yaml")
	if err != nil {
		t.Fatal(err)
	}
	dir := workspace(t, map[string]string{"kubectl": client})
	w := &trial{T: t, cluster: cluster, run: func(script string) (string, error) {
		shell := lab.Node1.Command("bash", "-c", script)
		shell.Dir = dir
		shell.Env = append(os.Environ(), "HOME="+dir, "KUBECONFIG="+kubeconfig, "PATH="+dir+"/bin:"+os.Getenv("PATH"))
		var out strings.Builder
		shell.Stdout, shell.Stderr = &out, &out
		if err := shell.Start(); err != nil {
			return "", err
		}
		impatience := time.AfterFunc(time.Minute, func() { _ = shell.Kill() })
		defer impatience.Stop()
		err := shell.Wait()
		return out.String(), err
	}}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node2", Labels: map[string]string{corev1.LabelOSStable: "linux"}}}
	if _, err := cluster.Client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.must("kubectl apply --server-side -f " + fixture)
	return w
}

// must runs commands that must succeed.
func (w *trial) must(commands ...string) {
	w.Helper()
	for _, command := range commands {
		if out, err := w.run(command); err != nil {
			w.Fatalf("%s: %v\n%s", command, err, out)
		}
	}
}

// daemonSet returns the pods' spec of the DaemonSet that is already there.
func (w *trial) daemonSet() corev1.PodSpec {
	w.Helper()
	set, err := w.cluster.Client.AppsV1().DaemonSets("kube-system").Get(w.Context(), "kube-proxy", metav1.GetOptions{})
	if err != nil {
		w.Fatal(err)
	}
	return set.Spec.Template.Spec
}

// want waits until the controller has observed every DaemonSet and each node runs pods of these DaemonSets only.
func (w *trial) want(when string, want map[string][]string) {
	w.Helper()
	var got map[string][]string
	last := false // a pod that the first step binds is seen by the next one
	err := wait.PollUntilContextTimeout(w.Context(), 200*time.Millisecond, 30*time.Second, true, func(ctx context.Context) (bool, error) {
		now, err := w.step(ctx)
		if err != nil {
			return false, err
		}
		got = now
		before := last
		last = reflect.DeepEqual(got, want)
		return before && last, nil
	})
	if err != nil {
		w.Fatalf("%s: the DaemonSets with pods, by node, are %v, want %v (%v)", when, got, want, err)
	}
}

// step does what the scheduler and the kubelets do: it binds pods to their nodes, and removes those that are to end. It returns the
// DaemonSets that each node has pods of; a DaemonSet whose latest change is not observed is an extra one.
func (w *trial) step(ctx context.Context) (map[string][]string, error) {
	sets, err := w.cluster.Client.AppsV1().DaemonSets("kube-system").List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	client := w.cluster.Client.CoreV1().Pods("kube-system")
	pods, err := client.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	found, names := map[string][]string{}, map[types.UID]string{}
	for _, set := range sets.Items {
		names[set.UID] = set.Name
		if set.Status.ObservedGeneration != set.Generation {
			found["not observed"] = append(found["not observed"], set.Name)
		}
	}
	for _, pod := range pods.Items {
		name := names[metav1.GetControllerOf(&pod).UID]
		switch {
		case pod.DeletionTimestamp != nil || name == "": // the garbage collector may not have removed the pods of a deleted DaemonSet yet
			err = client.Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))})
		case pod.Spec.NodeName != "":
			found[pod.Spec.NodeName] = append(found[pod.Spec.NodeName], name)
		case !slices.ContainsFunc(pods.Items, func(other corev1.Pod) bool { return MeantFor(&pod) == MeantFor(&other) && Apart(&pod, &other) }):
			binding := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: pod.Name}, Target: corev1.ObjectReference{Kind: "Node", Name: MeantFor(&pod)}}
			err = client.Bind(ctx, binding, metav1.CreateOptions{})
		}
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, err
		}
	}
	for _, sets := range found {
		slices.Sort(sets)
	}
	return found, nil
}
