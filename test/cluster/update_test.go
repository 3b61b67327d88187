//go:build linux

package cluster

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
)

// whole reports whether all tests run, as make cluster does, or only the most telling ones.
func whole() bool { return os.Getenv("CLUSTER") == "whole" }

// TestKernelCluster updates the proxies of a cluster to the next release and back while Pods are replaced, takes over from
// Kubernetes' own kube-proxy, and goes back to it.
func TestKernelCluster(t *testing.T) {
	w := newWorld(t)
	modes := []string{"nftables", "iptables"}
	for _, mode := range modes {
		if whole() || mode == "nftables" {
			t.Run("update/"+mode, func(t *testing.T) { w.during(t).update(mode, w.daemonSet) })
		}
		if whole() {
			t.Run("surge/"+mode, func(t *testing.T) { w.during(t).update(mode, w.surging) })
		}
	}
	for _, before := range modes {
		for _, after := range modes {
			if whole() || before == "iptables" && after == "nftables" {
				t.Run("take over/"+before+"-"+after, func(t *testing.T) { w.during(t).takeOver(before, after) })
			}
		}
	}
}

// update updates to the next release and back. set makes the DaemonSet of a release.
func (w *world) update(mode string, set func(release) *appsv1.DaemonSet) {
	w.rollOut(set(release{present, mode}))
	p := w.poll()
	for _, to := range []string{next, present} {
		replaced := w.replace()
		w.rollOut(set(release{to, mode}))
		replaced()
	}
	p.end("to the next release and back in " + mode + " mode")
}

// surging returns a DaemonSet whose update starts the new Pod of a node before it stops the old one. Two Pods with the same
// host ports cannot run on one node, so the containers declare none.
func (w *world) surging(r release) *appsv1.DaemonSet {
	set := w.daemonSet(r)
	set.Spec.UpdateStrategy.RollingUpdate = &appsv1.RollingUpdateDaemonSet{MaxSurge: ptr.To(intstr.FromInt32(1)), MaxUnavailable: ptr.To(intstr.FromInt32(0))}
	c := &set.Spec.Template.Spec.Containers[0]
	for _, probe := range []*corev1.Probe{c.StartupProbe, c.LivenessProbe} {
		for _, port := range c.Ports {
			if port.Name == probe.HTTPGet.Port.StrVal {
				probe.HTTPGet.Port = intstr.FromInt32(port.ContainerPort)
			}
		}
	}
	c.Ports = nil
	return set
}

// takeOver replaces Kubernetes' own kube-proxy in one mode by this one in a mode, and puts it back. It removes our rules
// before it writes its own if it starts in another mode, so the way back goes through its mode.
func (w *world) takeOver(before, after string) {
	theirs, ours, back := release{upstream, before}, release{present, after}, release{present, before}
	w.rollOut(w.daemonSet(theirs))
	p := w.poll()
	w.rollOut(w.daemonSet(ours))
	time.Sleep(settle)
	p.end(fmt.Sprintf("from %s to %s", theirs, ours))
	p = w.poll()
	if back != ours {
		w.rollOut(w.daemonSet(back))
		time.Sleep(settle)
	}
	w.rollOut(w.daemonSet(theirs))
	time.Sleep(settle)
	p.end(fmt.Sprintf("from %s to %s", ours, theirs))
}

// settle is how long the pollers continue after a take-over: the rules of the proxy before are removed when those of the
// next one are in force.
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
