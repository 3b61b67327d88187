//go:build linux

package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	listers "k8s.io/client-go/listers/core/v1"

	"github.com/seed-11a05479/kube-proxy/test/e2e"
	"github.com/seed-11a05479/kube-proxy/test/image"
	"github.com/seed-11a05479/kube-proxy/test/netns"
)

const (
	// period is how often a kubelet looks at the Pods.
	period = 50 * time.Millisecond
	// drain is how long a Pod that is deleted continues to serve, like one with a preStop hook that sleeps.
	drain = 4 * time.Second
)

// kubelet runs the Pods of one node, as far as the tests need it: those of the host network as containers of the image,
// others as servers on port 8080 of the lab's pods. It also binds the Pods of DaemonSets to its node, unless a host port
// is taken or a rule between Pods keeps them apart, and forwards ports (forward.go).
type kubelet struct {
	node   *netns.Node
	client kubernetes.Interface
	// dir holds the node's files: host paths, volumes, bundles and logs.
	dir string
	// images are root file systems by image.
	images map[string]string
	// careless are images whose containers end with an error when they are stopped.
	careless map[string]bool
	// complain reports what a test must fail for.
	complain func(format string, args ...any)

	pods listers.PodLister
	work sync.WaitGroup

	mu      sync.Mutex
	free    []*netns.Host
	started map[types.UID]context.CancelFunc // ends the Pod
}

// run runs Pods until ctx ends, and then stops them.
func (k *kubelet) run(ctx context.Context) {
	k.free, k.started = slices.Clone(k.node.Pods[1:]), map[types.UID]context.CancelFunc{} // the first one is a client
	factory := informers.NewSharedInformerFactory(k.client, 0)
	k.pods = factory.Core().V1().Pods().Lister()
	factory.Core().V1().Pods().Informer()
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	for ctx.Err() == nil {
		pods, err := k.pods.List(labels.Everything())
		if err != nil {
			k.complain("%s: list pods: %v", k.node.Name, err)
		}
		for _, pod := range pods {
			k.follow(ctx, pod, pods)
		}
		time.Sleep(period)
	}
	k.work.Wait()
}

// follow binds, starts or ends a Pod.
func (k *kubelet) follow(ctx context.Context, pod *corev1.Pod, all []*corev1.Pod) {
	if pod.Spec.NodeName == "" && e2e.MeantFor(pod) == k.node.Name && !slices.ContainsFunc(all, func(other *corev1.Pod) bool {
		return other.Spec.NodeName == k.node.Name && (shareHostPort(pod, other) || e2e.Apart(pod, other))
	}) {
		err := k.client.CoreV1().Pods(pod.Namespace).Bind(ctx, &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Name: pod.Name}, Target: corev1.ObjectReference{Kind: "Node", Name: k.node.Name}}, metav1.CreateOptions{})
		if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) && ctx.Err() == nil {
			k.complain("bind %s: %v", pod.Name, err)
		}
	}
	if pod.Spec.NodeName != k.node.Name {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	end, started := k.started[pod.UID]
	switch {
	case started && pod.DeletionTimestamp != nil:
		end()
	case !started:
		alive, end := context.WithCancel(ctx)
		k.started[pod.UID] = end
		k.work.Go(func() {
			if err := k.host(ctx, alive, pod); err != nil {
				k.complain("%s on %s: %v", pod.Name, k.node.Name, err)
			}
		})
	}
}

// shareHostPort reports whether two Pods cannot run on the same node.
func shareHostPort(a, b *corev1.Pod) bool {
	for _, x := range a.Spec.Containers {
		for _, y := range b.Spec.Containers {
			for _, p := range x.Ports {
				if slices.ContainsFunc(y.Ports, func(q corev1.ContainerPort) bool { return q.HostPort != 0 && q.HostPort == p.HostPort }) {
					return true
				}
			}
		}
	}
	return false
}

// host runs a Pod until alive is done, and removes its object.
func (k *kubelet) host(ctx, alive context.Context, pod *corev1.Pod) error {
	run := k.serve
	if pod.Spec.HostNetwork {
		run = k.contain
	}
	failed := run(alive, pod)
	if ctx.Err() != nil {
		return failed
	}
	now := int64(0)
	err := k.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: &now, Preconditions: &metav1.Preconditions{UID: &pod.UID}})
	if apierrors.IsNotFound(err) || ctx.Err() != nil {
		err = nil
	}
	return errors.Join(failed, err)
}

// serve runs a Pod as servers in one of the lab's pods.
func (k *kubelet) serve(alive context.Context, pod *corev1.Pod) error {
	k.mu.Lock()
	if len(k.free) == 0 {
		k.mu.Unlock()
		return errors.New("the lab has no more pods on this node")
	}
	host := k.free[0]
	k.free = k.free[1:]
	k.mu.Unlock()
	var servers []*netns.Server
	for _, protocol := range []netns.Protocol{netns.TCP, netns.UDP} {
		server, err := host.Serve(protocol, 8080)
		if err != nil {
			return err
		}
		servers = append(servers, server)
	}
	if err := k.ready(alive, pod, host); err != nil {
		return err
	}
	<-alive.Done()
	time.Sleep(drain)
	var errs []error
	for _, server := range servers {
		errs = append(errs, server.Close())
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.free = append(k.free, host)
	return errors.Join(errs...)
}

// ready writes into a Pod's status that it is ready. It is until it ends: the controllers see that it is being deleted.
func (k *kubelet) ready(ctx context.Context, pod *corev1.Pod, host *netns.Host) error {
	api := k.client.CoreV1().Pods(pod.Namespace)
	now, err := api.Get(ctx, pod.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	now.Status = corev1.PodStatus{
		Phase: corev1.PodRunning, PodIP: host.IPv4.String(), PodIPs: []corev1.PodIP{{IP: host.IPv4.String()}, {IP: host.IPv6.String()}},
		HostIP: k.node.IPv4.String(), HostIPs: []corev1.HostIP{{IP: k.node.IPv4.String()}, {IP: k.node.IPv6.String()}},
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()}},
	}
	_, err = api.UpdateStatus(ctx, now, metav1.UpdateOptions{})
	return err
}

// contain runs a Pod's containers with runc.
func (k *kubelet) contain(alive context.Context, pod *corev1.Pod) error {
	dir := filepath.Join(k.dir, pod.Name)
	volumes := map[string]string{}
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		path, err := k.volume(alive, pod, v, filepath.Join(dir, v.Name))
		if err != nil {
			return fmt.Errorf("volume %s: %w", v.Name, err)
		}
		volumes[v.Name] = path
	}
	place := image.Place{Network: k.node.Path(), Volumes: volumes, Env: map[string]string{"NODE_NAME": k.node.Name}}
	for i := range pod.Spec.InitContainers {
		cmd, err := k.container(place, pod, &pod.Spec.InitContainers[i])
		if err == nil {
			err = cmd.Run()
		}
		if err != nil {
			return fmt.Errorf("init container: %w; see %s", err, k.logPath(pod))
		}
	}
	main := &pod.Spec.Containers[0]
	cmd, err := k.container(place, pod, main)
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	if k.probe(alive, main) {
		if err := k.ready(alive, pod, k.node.Host); err != nil && alive.Err() == nil {
			return err
		}
	}
	select {
	case err := <-ended:
		return fmt.Errorf("the container ended by itself: %w; see %s", err, k.logPath(pod))
	case <-alive.Done():
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case err := <-ended:
		if k.careless[main.Image] {
			return nil
		}
		return err
	case <-time.After(time.Duration(*pod.Spec.TerminationGracePeriodSeconds) * time.Second):
		return errors.Join(fmt.Errorf("the container did not end within its grace period; see %s", k.logPath(pod)), cmd.Kill())
	}
}

// container prepares one container of a Pod.
func (k *kubelet) container(place image.Place, pod *corev1.Pod, c *corev1.Container) (*netns.Cmd, error) {
	place.RootFS = k.images[c.Image]
	if place.RootFS == "" {
		return nil, fmt.Errorf("no image %q, but %q", c.Image, slices.Sorted(maps.Keys(k.images)))
	}
	bundle := filepath.Join(k.dir, pod.Name, "bundle-"+c.Name)
	if err := os.MkdirAll(bundle, 0o755); err != nil {
		return nil, err
	}
	args, err := place.Command(bundle, fmt.Sprintf("%s-%s-%d", pod.Name, c.Name, os.Getpid()), c.DeepCopy())
	if err != nil {
		return nil, err
	}
	log, err := os.OpenFile(k.logPath(pod), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	cmd := k.node.Command("runc", args...)
	cmd.Stdout, cmd.Stderr = log, log
	return cmd, nil
}

func (k *kubelet) logPath(pod *corev1.Pod) string { return filepath.Join(k.dir, pod.Name, "log") }

// probe waits until the startup probe succeeds. It returns false if the Pod is deleted before.
func (k *kubelet) probe(alive context.Context, c *corev1.Container) bool {
	if c.StartupProbe == nil {
		return true
	}
	get := c.StartupProbe.HTTPGet
	port := get.Port.String()
	for _, p := range c.Ports {
		if p.Name == port {
			port = fmt.Sprint(p.ContainerPort)
		}
	}
	client := http.Client{Transport: &http.Transport{DialContext: k.node.Dial, DisableKeepAlives: true}, Timeout: time.Second}
	url := "http://" + net.JoinHostPort(k.node.IPv4.String(), port) + get.Path
	for alive.Err() == nil {
		if answer, err := client.Get(url); err == nil {
			answer.Body.Close()
			if answer.StatusCode == http.StatusOK {
				return true
			}
		}
		time.Sleep(period)
	}
	return false
}
