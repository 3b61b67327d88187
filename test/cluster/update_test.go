//go:build linux

package cluster

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/wait"
)

// whole reports whether all tests run, as make cluster does, or only the most important ones.
func whole() bool { return os.Getenv("CLUSTER") == "whole" }

// TestKernelCluster updates the proxies of a cluster to the next release and back while Pods are replaced, takes over from
// Kubernetes' own kube-proxy, and goes back to it.
func TestKernelCluster(t *testing.T) {
	w := newWorld(t)
	modes := []string{"nftables", "iptables"}
	strategies := []strategy{{"manifest", nil}, {"surge", surge}, {"in turn", inTurn}}
	for _, by := range strategies {
		for _, mode := range modes {
			if whole() || mode == "nftables" && by.change == nil {
				t.Run("update/"+by.name+"/"+mode, func(t *testing.T) { w.during(t).update(mode, by) })
			}
		}
		for _, before := range modes {
			for _, after := range modes {
				if whole() && by.change != nil || before == "iptables" && after == "nftables" && by.change == nil {
					t.Run("take over/"+by.name+"/"+before+"-"+after, func(t *testing.T) { w.during(t).takeOver(before, after, by) })
				}
			}
		}
	}
	for _, shape := range shapes {
		if whole() || shape.quick {
			t.Run("drop-in/"+shape.name, func(t *testing.T) { w.during(t).dropIn(shape) })
		}
	}
	t.Run("five steps", func(t *testing.T) { w.during(t).fiveSteps() })
}

// strategy is a way to update a DaemonSet; a nil change is that of build/manifests.
type strategy struct {
	name   string
	change func(*appsv1.DaemonSet)
}

// of returns the DaemonSet of a release with the strategy.
func (by strategy) of(w *world, r release) *appsv1.DaemonSet {
	set := w.daemonSet(r)
	if by.change != nil {
		by.change(set)
	}
	return set
}

// inTurn stops the old Pod of a node before it starts the new one, on one node at a time.
func inTurn(set *appsv1.DaemonSet) {
	set.Spec.UpdateStrategy.RollingUpdate = &appsv1.RollingUpdateDaemonSet{MaxSurge: new(intstr.FromInt32(0)), MaxUnavailable: new(intstr.FromInt32(1))}
}

// surge starts the new Pod of a node before it stops the old one. Two Pods with the same host ports cannot run on one node, so
// the containers declare none.
func surge(set *appsv1.DaemonSet) {
	set.Spec.UpdateStrategy.RollingUpdate = &appsv1.RollingUpdateDaemonSet{MaxSurge: new(intstr.FromInt32(1)), MaxUnavailable: new(intstr.FromInt32(0))}
	c := &set.Spec.Template.Spec.Containers[0]
	for _, probe := range []*corev1.Probe{c.StartupProbe, c.LivenessProbe} {
		for _, port := range c.Ports {
			if port.Name == probe.HTTPGet.Port.StrVal {
				probe.HTTPGet.Port = intstr.FromInt32(port.ContainerPort)
			}
		}
	}
	c.Ports = nil
}

// update updates to the next release and back.
func (w *world) update(mode string, by strategy) {
	w.rollOut(by.of(w, release{present, mode}))
	p := w.poll()
	for _, to := range []string{next, present} {
		replaced := w.replace()
		w.rollOut(by.of(w, release{to, mode}))
		replaced()
	}
	p.end("to the next release and back in " + mode + " mode")
}

// takeOver replaces Kubernetes' own kube-proxy in one mode by this one in a mode, and puts it back. If Kubernetes' own starts
// in another mode than ours, it removes our rules before it writes its own, and with a surge ours then repairs them: so the way
// to it goes through its mode.
func (w *world) takeOver(before, after string, by strategy) {
	theirs, ours, back := release{upstream, before}, release{present, after}, release{present, before}
	w.rollOut(by.of(w, back))
	w.onlyIn(before)
	w.rollOut(by.of(w, theirs))
	p := w.poll()
	w.rollOut(by.of(w, ours))
	w.onlyIn(after)
	time.Sleep(settle)
	p.end(fmt.Sprintf("from %s to %s", theirs, ours))
	p = w.poll()
	if back != ours {
		w.rollOut(by.of(w, back))
		w.onlyIn(before)
	}
	w.rollOut(by.of(w, theirs))
	time.Sleep(settle)
	p.end(fmt.Sprintf("from %s to %s", ours, theirs))
}

// onlyIn waits until every node has rules of one mode only.
func (w *world) onlyIn(mode string) {
	w.t.Helper()
	for _, node := range w.lab.Nodes() {
		w.eventually(node.Name+" has rules of "+mode+" mode only", func() string {
			for other, command := range map[string][]string{"nftables": {"nft", "list", "tables"}, "iptables": {"iptables-save", "-t", "nat"}} {
				out, err := node.Command(command[0], command[1:]...).Output()
				w.must(err)
				word := map[string]string{"nftables": "ip kube-proxy", "iptables": "KUBE-SERVICES"}[other]
				if has := strings.Contains(string(out), word); has != (other == mode) {
					return fmt.Sprintf("rules of %s: %t", other, has)
				}
			}
			return ""
		})
	}
}

// settle is how long the pollers continue after a take-over.
const settle = 3 * time.Second

// during returns the world for a subtest.
func (w *world) during(t *testing.T) *world {
	during := *w
	during.t = t
	return &during
}

// replace replaces the Pods of the Service web, one node after the other, in the background. The returned function waits
// until it is done.
func (w *world) replace() (wait func()) {
	done := make(chan error, 1)
	go func() { done <- w.replaceAll() }()
	return func() {
		w.t.Helper()
		w.must(<-done)
	}
}

// replaceAll replaces the Pod of each node: it creates a new one, waits until it is ready, deletes the old one, and waits
// until it is gone.
func (w *world) replaceAll() error {
	ctx, api := w.t.Context(), w.client.CoreV1().Pods("default")
	for _, node := range w.lab.Nodes() {
		old, err := api.List(ctx, metav1.ListOptions{LabelSelector: "app=web", FieldSelector: "spec.nodeName=" + node.Name})
		if err != nil {
			return err
		}
		if len(old.Items) != 1 {
			return fmt.Errorf("%s has %d pods, want 1", node.Name, len(old.Items))
		}
		if err := w.pod("web", node.Name); err != nil {
			return err
		}
		name := old.Items[0].Name
		if err := api.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			return err
		}
		err = wait.PollUntilContextTimeout(ctx, period, patience, true, func(ctx context.Context) (bool, error) {
			_, err := api.Get(ctx, name, metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return true, nil
			}
			return false, err
		})
		if err != nil {
			return fmt.Errorf("wait for the end of %s: %w", name, err)
		}
	}
	return nil
}
