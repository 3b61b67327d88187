//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const (
	// withTaint installs the manifests in nftables mode with the component, in an overlay as docs/install.md describes.
	withTaint = `mkdir build/manifests/overlays/own
cat >build/manifests/overlays/own/kustomization.yaml <<END
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [../nftables]
components: [../../components/startup-taint]
END
kubectl apply -k build/manifests/overlays/own
` + rollout + ` --timeout=4m`

	// registersWith is what install.md adds to the kubelet's configuration.
	registersWith = "registerWithTaints:\n- {key: kube-proxy/startup, effect: NoSchedule}\n"

	// chartWithTaint sets the chart's value after a taint that it removes.
	chartWithTaint = `kubectl taint node node2 kube-proxy/startup:NoSchedule
helm upgrade kube-proxy build/charts/kube-proxy -n kube-system --reuse-values --set startupTaint=kube-proxy/startup:NoSchedule
` + rollout + ` --timeout=4m`
)

// startupTaint lets the second node join anew with the taint of the component, and checks that its pods start after its Services.
func (w *world) startupTaint(ctx context.Context) error {
	page, err := os.ReadFile(filepath.Join(w.repository, "docs", "install.md"))
	if err != nil || !strings.Contains(string(page), registersWith) {
		return errors.Join(errors.New("docs/install.md registers Nodes otherwise"), err)
	}
	if err := w.administer(ctx, withTaint); err != nil {
		return err
	}
	n, began := w.nodes[1], time.Now()
	err = w.reboot(ctx, func() error {
		if _, err := w.kubectl(ctx, "delete", "node", n.name); err != nil {
			return err
		}
		// The garbage collector would take a minute. A new node has no pods that the kubelet starts again whatever the taints are.
		if _, err := w.kubectl(ctx, "delete", "pods", "-A", "--field-selector=spec.nodeName="+n.name, "--force", "--grace-period=0"); err != nil {
			return err
		}
		config, err := os.OpenFile(filepath.Join(n.dir, "var", "lib", "kubelet", "config.yaml"), os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		_, err = config.WriteString(registersWith)
		return errors.Join(err, config.Close())
	})
	if err != nil {
		return err
	}
	removed, err := w.taintRemoved(ctx, began)
	if err != nil {
		return err
	}
	text, err := w.kubectl(ctx, "get", "pods", "-l", "app=client", "--field-selector=spec.nodeName="+n.name, "-o=jsonpath={.items[*].metadata.creationTimestamp}")
	if err != nil {
		return err
	}
	if created, err := time.Parse(time.RFC3339, text); err != nil || created.Before(removed.Truncate(time.Second)) {
		return errors.Join(fmt.Errorf("the pod of the DaemonSet client was created on %s at %q, before the taint was removed", n.name, text), err)
	}
	return nil
}

// chartsTaint sets the chart's value.
func (w *world) chartsTaint(ctx context.Context) error {
	began := time.Now()
	if err := w.administer(ctx, chartWithTaint); err != nil {
		return err
	}
	_, err := w.taintRemoved(ctx, began)
	return err
}

// taintRemoved returns when the proxy removed the second node's taint, according to its Event.
func (w *world) taintRemoved(ctx context.Context, since time.Time) (at time.Time, err error) {
	if err := w.untainted(ctx, w.nodes[1]); err != nil {
		return at, err
	}
	err = eventually(ctx, func() error {
		text, err := w.kubectl(ctx, "get", "events.events.k8s.io", "--field-selector=reason=StartupTaintRemoved,regarding.name="+w.nodes[1].name, "-o=json")
		if err != nil {
			return err
		}
		var list struct {
			Items []struct{ EventTime time.Time }
		}
		if err := json.Unmarshal([]byte(text), &list); err != nil {
			return err
		}
		for _, event := range list.Items {
			if at = event.EventTime; at.After(since) {
				fmt.Printf("   the taint was removed at %s\n", at.Format(time.TimeOnly))
				return nil
			}
		}
		return fmt.Errorf("no Event says that the taint of %s was removed", w.nodes[1].name)
	})
	return at, err
}

// untainted waits until a node has no taint.
func (w *world) untainted(ctx context.Context, n *node) error {
	return eventually(ctx, func() error {
		taints, err := w.kubectl(ctx, "get", "node", n.name, "-o=jsonpath={.spec.taints}")
		if err == nil && taints != "" {
			err = fmt.Errorf("%s has the taints %s", n.name, taints)
		}
		return err
	})
}
