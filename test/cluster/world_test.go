//go:build linux

package cluster

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/seed-11a05479/kube-proxy/test/e2e"
	"github.com/seed-11a05479/kube-proxy/test/image"
	"github.com/seed-11a05479/kube-proxy/test/netns"
)

const (
	repository = "../.."
	namespace  = "kube-system"
	// patience bounds every wait for something that must happen.
	patience = 4 * time.Minute
	// hurry is the minReadySeconds of make test: a rollout to three nodes waits as long three times, and nothing else changes with it.
	hurry = 1
)

// The images that the DaemonSet may run. next is built from the same source with another version, upstream contains
// Kubernetes' own kube-proxy.
const (
	present  = "localhost/kube-proxy:present"
	next     = "localhost/kube-proxy:next"
	upstream = "localhost/kube-proxy:upstream"

	nextVersion = "v99.0.0"
)

// world is a cluster. All tests share it, except for the DaemonSet.
type world struct {
	t      *testing.T
	lab    *netns.Lab
	api    *e2e.Cluster
	client kubernetes.Interface
	dir    string
	// set is the DaemonSet of build/manifests.
	set *appsv1.DaemonSet
	// versions are those of the proxies, by image.
	versions map[string]string
}

// TestMain removes the unpacked images.
func TestMain(m *testing.M) {
	code := m.Run()
	if roots, err := unpacked(); err == nil {
		os.RemoveAll(filepath.Dir(roots[present]))
	}
	os.Exit(code)
}

// unpacked returns the root file systems of all images: those of next and upstream differ in one file.
var unpacked = sync.OnceValues(func() (map[string]string, error) {
	root, err := image.Unpack(repository)
	if err != nil {
		return nil, err
	}
	dir, ctx := filepath.Dir(root), context.Background()
	newer := filepath.Join(dir, "newer")
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w -X k8s.io/component-base/version.gitVersion="+nextVersion, "-o", newer, "./cmd/kube-proxy")
	build.Dir, build.Env = repository, append(os.Environ(), "CGO_ENABLED=0", "GOARCH="+runtime.GOARCH)
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%v: %w: %s", build.Args, err, out)
	}
	peer, err := e2e.Peer(ctx)
	if err != nil {
		return nil, err
	}
	roots := map[string]string{present: root}
	for name, program := range map[string]string{next: newer, upstream: peer} {
		copied := filepath.Join(dir, strings.ReplaceAll(filepath.Base(name), ":", "-"))
		binary := filepath.Join(copied, "usr", "local", "bin", "kube-proxy")
		for _, command := range [][]string{{"cp", "-al", root, copied}, {"rm", binary}, {"cp", "-L", program, binary}} {
			if out, err := exec.CommandContext(ctx, command[0], command[1:]...).CombinedOutput(); err != nil {
				return nil, fmt.Errorf("%v: %w: %s", command, err, out)
			}
		}
		roots[name] = copied
	}
	return roots, nil
})

// newWorld starts a cluster of three nodes, with Services and Pods but no proxy yet.
func newWorld(t *testing.T) *world {
	t.Helper()
	netns.Require(t, "runc", "nft", "iptables")
	began := time.Now()
	images, err := unpacked()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("the images took %v", time.Since(began).Round(time.Second))
	w := &world{t: t, dir: t.TempDir(), versions: map[string]string{}}
	for name, root := range images {
		out, err := exec.Command(filepath.Join(root, "usr", "local", "bin", "kube-proxy"), "--version").Output()
		w.must(err)
		_, w.versions[name], _ = strings.Cut(strings.TrimSpace(string(out)), " ")
	}
	w.lab = netns.Start(t, netns.Options{Nodes: 3, PodsPerNode: 4, ClientRoutes: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}})
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute) // the servers may have to be built
	defer cancel()
	w.api, err = e2e.StartCluster(ctx, w.lab.Gateway, w.dir)
	w.must(err)
	w.client = w.api.Client
	w.must(w.api.StartManager(ctx))
	alive, stop := context.WithCancel(context.Background())
	var kubelets sync.WaitGroup
	t.Cleanup(func() {
		stop()
		kubelets.Wait()
	})
	for _, node := range w.lab.Nodes() {
		w.createNode(node)
		k := &kubelet{node: node, client: w.client, dir: filepath.Join(w.dir, node.Name), images: images,
			careless: map[string]bool{upstream: true}, complain: t.Errorf}
		server, err := k.forwards()
		w.must(err)
		t.Cleanup(server.Close)
		kubelets.Go(func() { k.run(alive) })
	}
	t.Cleanup(func() { // before the kubelets end
		if t.Failed() {
			w.logs()
		}
	})
	w.install()
	w.services()
	t.Logf("the cluster took %v with its images", time.Since(began).Round(time.Second))
	return w
}

// logs prints the end of the containers' logs.
func (w *world) logs() {
	paths, err := filepath.Glob(filepath.Join(w.dir, "node*", "*", "log"))
	w.must(err)
	for _, path := range paths {
		text, err := os.ReadFile(path)
		w.must(err)
		w.t.Logf("%s:\n%s", path, text[max(0, len(text)-6000):])
	}
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// eventually repeats a check until it returns no complaint.
func (w *world) eventually(what string, check func() (complaint string)) {
	w.t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		complaint := check()
		if complaint == "" {
			return
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("%s: timed out after %s: %s", what, patience, complaint)
		}
	}
}

func (w *world) createNode(node *netns.Node) {
	w.t.Helper()
	api := w.client.CoreV1().Nodes()
	created, err := api.Create(w.t.Context(), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: node.Name, Labels: map[string]string{corev1.LabelOSStable: "linux", corev1.LabelHostname: node.Name}},
	}, metav1.CreateOptions{})
	w.must(err)
	created.Status.Addresses = []corev1.NodeAddress{
		{Type: corev1.NodeInternalIP, Address: node.IPv4.String()}, {Type: corev1.NodeInternalIP, Address: node.IPv6.String()}}
	created.Status.DaemonEndpoints.KubeletEndpoint.Port = apiPort
	_, err = api.UpdateStatus(w.t.Context(), created, metav1.UpdateOptions{})
	w.must(err)
}

// install creates the objects of build/manifests, with a ConfigMap for each mode, and keeps the DaemonSet for later.
func (w *world) install() {
	w.t.Helper()
	ctx := w.t.Context()
	w.set = &appsv1.DaemonSet{}
	for _, mode := range []string{"iptables", "nftables"} {
		rendered, err := image.Render(filepath.Join(repository, "build", "manifests", "overlays", mode))
		w.must(err)
		var config corev1.ConfigMap
		w.must(yaml.UnmarshalStrict(rendered["ConfigMap"], &config))
		config.Name += "-" + mode
		config.Data["kubeconfig.conf"] = strings.Replace(config.Data["kubeconfig.conf"], "https://control-plane.example:6443",
			"https://"+netip.AddrPortFrom(w.lab.Gateway.IPv4, 6443).String(), 1)
		// The pods of both families.
		config.Data["config.conf"] = strings.Replace(config.Data["config.conf"], "[10.244.0.0/16]", `[10.244.0.0/16, "fd00:10:244::/48"]`, 1)
		// The version that Kubernetes' own proxy reads.
		config.Data["config-v1alpha1.conf"] = fmt.Sprintf(`apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: %s
clientConnection: {kubeconfig: /var/lib/kube-proxy/kubeconfig.conf}
detectLocalMode: ClusterCIDR
clusterCIDR: 10.244.0.0/16,fd00:10:244::/48
`, mode)
		_, err = w.client.CoreV1().ConfigMaps(namespace).Create(ctx, &config, metav1.CreateOptions{})
		w.must(err)
		if mode == "nftables" {
			continue
		}
		var account corev1.ServiceAccount
		var role rbacv1.ClusterRole
		var binding rbacv1.ClusterRoleBinding
		for kind, into := range map[string]any{"DaemonSet": w.set, "ServiceAccount": &account, "ClusterRole": &role, "ClusterRoleBinding": &binding} {
			w.must(yaml.UnmarshalStrict(rendered[kind], into))
		}
		if !whole() {
			w.set.Spec.MinReadySeconds = hurry
		}
		_, err = w.client.CoreV1().ServiceAccounts(namespace).Create(ctx, &account, metav1.CreateOptions{})
		w.must(err)
		_, err = w.client.RbacV1().ClusterRoles().Create(ctx, &role, metav1.CreateOptions{})
		w.must(err)
		_, err = w.client.RbacV1().ClusterRoleBindings().Create(ctx, &binding, metav1.CreateOptions{})
		w.must(err)
	}
	for _, needed := range []struct{ namespace, name string }{{namespace, "kube-proxy"}, {"default", "default"}} {
		w.eventually("the ServiceAccount "+needed.name, func() string {
			if _, err := w.client.CoreV1().ServiceAccounts(needed.namespace).Get(ctx, needed.name, metav1.GetOptions{}); err != nil {
				return err.Error()
			}
			_, err := w.client.CoreV1().ConfigMaps(needed.namespace).Get(ctx, "kube-root-ca.crt", metav1.GetOptions{})
			if err != nil {
				return err.Error()
			}
			return ""
		})
	}
}

// services creates Services, and two Pods on each node: one that is replaced while the tests run, and one that stays.
func (w *world) services() {
	w.t.Helper()
	for _, s := range []struct {
		name, app     string
		clusterIPs    []string
		nodePort      int32
		vip           string
		local, inside bool
	}{
		{"web", "web", []string{"10.96.0.10", "fd00:10:96::10"}, 30080, "192.0.2.1", false, false},
		{"local", "web", []string{"10.96.0.11", "fd00:10:96::11"}, 30081, "192.0.2.2", true, false},
		{"inside", "web", []string{"10.96.0.12", "fd00:10:96::12"}, 0, "", false, true},
		{"held", "held", []string{"10.96.0.13", "fd00:10:96::13"}, 30083, "192.0.2.3", false, false},
	} {
		service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: s.name}, Spec: corev1.ServiceSpec{
			Selector: map[string]string{"app": s.app}, ClusterIP: s.clusterIPs[0], ClusterIPs: s.clusterIPs,
			IPFamilyPolicy: new(corev1.IPFamilyPolicyRequireDualStack),
			Ports: []corev1.ServicePort{
				{Name: "http", Port: 80, TargetPort: intstr.FromInt32(8080), Protocol: corev1.ProtocolTCP, NodePort: s.nodePort},
				{Name: "udp", Port: 80, TargetPort: intstr.FromInt32(8080), Protocol: corev1.ProtocolUDP, NodePort: s.nodePort},
			},
		}}
		if s.vip != "" {
			service.Spec.Type = corev1.ServiceTypeLoadBalancer
		}
		if s.local {
			service.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
		}
		if s.inside {
			service.Spec.InternalTrafficPolicy = new(corev1.ServiceInternalTrafficPolicyLocal)
		}
		created, err := w.client.CoreV1().Services("default").Create(w.t.Context(), service, metav1.CreateOptions{})
		w.must(err)
		if s.vip != "" {
			created.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: s.vip}}
			_, err = w.client.CoreV1().Services("default").UpdateStatus(w.t.Context(), created, metav1.UpdateOptions{})
			w.must(err)
		}
	}
	for _, node := range w.lab.Nodes() {
		w.must(w.pod("web", node.Name))
		w.must(w.pod("held", node.Name))
	}
}

// pod creates a Pod and waits until it is ready.
func (w *world) pod(app, node string) error {
	api, ctx := w.client.CoreV1().Pods("default"), w.t.Context()
	pod, err := api.Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: app + "-" + node + "-", Labels: map[string]string{"app": app}},
		Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "server", Image: "server"}}},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	return wait.PollUntilContextTimeout(ctx, period, patience, true, func(ctx context.Context) (bool, error) {
		now, err := api.Get(ctx, pod.Name, metav1.GetOptions{})
		return err == nil && now.Status.Phase == corev1.PodRunning, err
	})
}

// release is what the DaemonSet runs.
type release struct{ image, mode string }

func (r release) String() string {
	_, tag, _ := strings.Cut(r.image, ":")
	return tag + " in " + r.mode + " mode"
}

// daemonSet returns the DaemonSet of build/manifests with the image and mode of a release.
func (w *world) daemonSet(r release) *appsv1.DaemonSet {
	set := w.set.DeepCopy()
	pod := &set.Spec.Template.Spec
	for i := range pod.Volumes {
		if pod.Volumes[i].ConfigMap != nil {
			pod.Volumes[i].ConfigMap.Name += "-" + r.mode
		}
	}
	for _, c := range []*corev1.Container{&pod.InitContainers[0], &pod.Containers[0]} {
		c.Image = r.image
		c.Args = append(c.Args, "-v=2")
		if r.image == upstream {
			c.Args[0] = strings.Replace(c.Args[0], "config.conf", "config-v1alpha1.conf", 1)
			c.SecurityContext = &corev1.SecurityContext{Privileged: new(true)} // as kubeadm grants it
		}
	}
	return set
}

// rollOut creates or updates the DaemonSet and waits until it runs everywhere.
func (w *world) rollOut(set *appsv1.DaemonSet) {
	w.t.Helper()
	version := w.versions[set.Spec.Template.Spec.Containers[0].Image]
	api, ctx := w.client.AppsV1().DaemonSets(namespace), w.t.Context()
	if old, err := api.Get(ctx, set.Name, metav1.GetOptions{}); err == nil {
		set.ResourceVersion = old.ResourceVersion
		set, err = api.Update(ctx, set, metav1.UpdateOptions{})
		w.must(err)
	} else {
		set, err = api.Create(ctx, set, metav1.CreateOptions{})
		w.must(err)
	}
	nodes := len(w.lab.Nodes())
	w.eventually("the DaemonSet", func() string {
		now, err := api.Get(ctx, set.Name, metav1.GetOptions{})
		w.must(err)
		s := now.Status
		if s.ObservedGeneration < set.Generation || int(s.UpdatedNumberScheduled) != nodes || int(s.NumberReady) != nodes || int(s.NumberAvailable) != nodes {
			return fmt.Sprintf("%+v", s)
		}
		return ""
	})
	for _, node := range w.lab.Nodes() {
		w.eventually(node.Name+" runs "+version, func() string {
			client := http.Client{Transport: &http.Transport{DialContext: node.Dial, DisableKeepAlives: true}, Timeout: 5 * time.Second}
			answer, err := client.Get("http://127.0.0.1:10249/metrics")
			if err != nil {
				return err.Error()
			}
			defer answer.Body.Close()
			return lacks(answer.Body, fmt.Sprintf("git_version=%q", version))
		})
	}
}
