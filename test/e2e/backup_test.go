//go:build linux

package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// later is the number of changes that a restored backup lacks: more than the API server makes itself until the proxy asks again.
const later = 2000

// backupRestored gives the cluster the state of a backup: what came after it is no longer served, what it has and what is new is,
// although the versions of all objects are earlier than those that the proxy has seen.
func backupRestored(w *world) {
	ctx, pod, backup := w.t.Context(), w.lab.Node1.Pods[1], filepath.Join(w.t.TempDir(), "backup")
	w.service("kept", "10.96.0.50", "fd00:10:96::50")
	w.endpoints("kept", w.lab.Node1.Pods[0])
	w.answers(pod, netns.TCP, "10.96.0.50:80", "pod1a")
	end := w.stream()
	w.must(w.cluster.Replace(ctx, func(data string) error { return os.CopyFS(backup, os.DirFS(data)) }))
	w.service("after", "10.96.0.51", "fd00:10:96::51")
	w.endpoints("after", w.lab.Node1.Pods[0])
	w.endpoints("kept", w.lab.Node2.Pods[0])
	w.answers(pod, netns.TCP, "10.96.0.51:80", "pod1a")
	w.answers(pod, netns.TCP, "10.96.0.50:80", "pod2a")
	for i := range later {
		_, err := w.client.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("later-", i)}}, metav1.CreateOptions{})
		w.must(err)
	}
	w.service("last", "10.96.0.52", "fd00:10:96::52") // whose version the proxy has seen
	w.endpoints("last", w.lab.Node1.Pods[0])
	w.answers(pod, netns.TCP, "10.96.0.52:80", "pod1a")

	w.must(w.cluster.Replace(ctx, func(data string) error {
		return errors.Join(os.RemoveAll(data), os.CopyFS(data, os.DirFS(backup)))
	}))
	w.silent(pod, netns.TCP, "10.96.0.51:80")
	w.silent(pod, netns.TCP, "10.96.0.52:80")
	w.answers(pod, netns.TCP, "10.96.0.50:80", "pod1a")
	w.service("new", "10.96.0.53", "fd00:10:96::53")
	w.endpoints("new", w.lab.Node2.Pods[0])
	w.answers(pod, netns.TCP, "10.96.0.53:80", "pod2a")
	end()
	if code, body := w.get("http://" + healthz + "/healthz"); code != http.StatusOK {
		w.t.Errorf("healthz after the backup was restored: %d %s", code, body)
	}
}
