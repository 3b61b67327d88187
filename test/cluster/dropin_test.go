//go:build linux

package cluster

import (
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/seed-11a05479/kube-proxy/pkg/userfile"
	"github.com/seed-11a05479/kube-proxy/test/e2e"
)

// shape is how a distribution runs kube-proxy. Its objects are in testdata, or printed by kubeadm from the file there.
type shape struct {
	name    string
	kubeadm bool
	// back means that the image of Kubernetes' own kube-proxy is set first and in between, as "kubectl set image" does.
	back bool
	// quick means that make test has it.
	quick bool
}

var shapes = []shape{
	{name: "kubeadm", kubeadm: true, back: true, quick: true},
	{name: "kind", kubeadm: true, back: true},
	{name: "kops"},
	{name: "k3s"},
	{name: "eks"},
}

// dropIn runs a distribution's DaemonSet with nothing changed but the image.
func (w *world) dropIn(s shape) {
	set := w.apply(w.printed(s))
	with := func(image string) *appsv1.DaemonSet {
		changed := set.DeepCopy()
		changed.Spec.Template.Spec.Containers[0].Image = image
		return changed
	}
	images := []string{present}
	if s.back {
		images = []string{upstream, present, upstream, present}
	}
	w.rollOut(with(images[0]))
	p := w.poll()
	for _, image := range images[1:] {
		w.rollOut(with(image))
	}
	w.replace()() // the rules of the proxy before do not know these Pods
	p.end("with the DaemonSet of " + s.name)
}

// printed returns the objects of a shape as YAML.
func (w *world) printed(s shape) []byte {
	w.t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", s.name+".yaml"))
	w.must(err)
	server := netip.AddrPortFrom(w.lab.Gateway.IPv4, 6443).String()
	text = []byte(strings.ReplaceAll(string(text), "SERVER", server))
	if !s.kubeadm {
		return text
	}
	program, err := e2e.Program(w.t.Context(), "kubeadm")
	w.must(err)
	file := filepath.Join(w.t.TempDir(), "kubeadm.yaml")
	w.must(os.WriteFile(file, text, 0o600))
	cmd := exec.CommandContext(w.t.Context(), program, "init", "phase", "addon", "kube-proxy", "--print-manifest", "--config", file)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	w.must(err)
	return out
}

// apply creates or updates objects, except for the DaemonSet, which it returns.
func (w *world) apply(text []byte) (set *appsv1.DaemonSet) {
	w.t.Helper()
	w.kubeconfigs()
	ctx := w.t.Context()
	documents, _ := userfile.Split("objects.yaml", text)
	for _, document := range documents {
		object, err := runtime.Decode(scheme.Codecs.UniversalDeserializer(), document.Text)
		w.must(err)
		switch o := object.(type) {
		case *appsv1.DaemonSet:
			set = o
		case *corev1.ConfigMap:
			api := w.client.CoreV1().ConfigMaps(o.Namespace)
			if err := api.Delete(ctx, o.Name, metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
				w.must(err)
			}
			_, err = api.Create(ctx, o, metav1.CreateOptions{})
		case *rbacv1.ClusterRoleBinding:
			_, err = w.client.RbacV1().ClusterRoleBindings().Create(ctx, o, metav1.CreateOptions{})
		case *corev1.ServiceAccount:
			_, err = w.client.CoreV1().ServiceAccounts(o.Namespace).Create(ctx, o, metav1.CreateOptions{})
		}
		if !apierrors.IsAlreadyExists(err) {
			w.must(err)
		}
	}
	if set == nil {
		w.t.Fatal("no DaemonSet")
	}
	return set
}

// kubeconfigs writes /var/lib/kube-proxy/kubeconfig on each node, with a client certificate.
func (w *world) kubeconfigs() {
	w.t.Helper()
	config := w.api.Config("proxy")
	w.must(readFiles(map[string]*[]byte{config.CAFile: &config.CAData, config.CertFile: &config.CertData, config.KeyFile: &config.KeyData}))
	file := clientcmdapi.NewConfig()
	file.Clusters["c"] = &clientcmdapi.Cluster{Server: "https://" + netip.AddrPortFrom(w.lab.Gateway.IPv4, 6443).String(), CertificateAuthorityData: config.CAData}
	file.AuthInfos["u"] = &clientcmdapi.AuthInfo{ClientCertificateData: config.CertData, ClientKeyData: config.KeyData}
	file.Contexts["c"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	file.CurrentContext = "c"
	for _, node := range w.lab.Nodes() {
		w.must(clientcmd.WriteToFile(*file, filepath.Join(w.dir, node.Name, "host", "var", "lib", "kube-proxy", "kubeconfig")))
	}
}

func readFiles(files map[string]*[]byte) (err error) {
	for name, into := range files {
		if *into, err = os.ReadFile(name); err != nil {
			return err
		}
	}
	return nil
}
