//go:build linux

package image

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend/backendtest"
	"github.com/seed-11a05479/kube-proxy/test/cases"
	"github.com/seed-11a05479/kube-proxy/test/laws"
)

const repository = "../.."

// rootfs is the unpacked image.
var rootfs = sync.OnceValues(func() (string, error) { return Unpack(repository) })

// TestMain removes the unpacked image.
func TestMain(m *testing.M) {
	code := m.Run()
	if root, err := rootfs(); err == nil {
		os.RemoveAll(filepath.Dir(root))
	}
	os.Exit(code)
}

// objects returns the objects that an overlay of build/manifests renders.
func objects(t *testing.T, overlay string) (set *appsv1.DaemonSet, config *corev1.ConfigMap) {
	t.Helper()
	rendered, err := Render(filepath.Join(repository, "build", "manifests", overlay))
	if err != nil {
		t.Fatal(err)
	}
	set, config = &appsv1.DaemonSet{}, &corev1.ConfigMap{}
	for kind, into := range map[string]any{"DaemonSet": set, "ConfigMap": config} {
		if err := yaml.UnmarshalStrict(rendered[kind], into); err != nil {
			t.Fatalf("%s of %s: %v", kind, overlay, err)
		}
	}
	return set, config
}

// idle is a backend that does nothing, because the container writes the rules.
type idle struct{ backend.Backend }

func (idle) Close() error { return nil }

// node returns the Node object of node1.
const node = `apiVersion: v1
kind: Node
metadata: {name: node1}
status:
  addresses: [{type: InternalIP, address: 172.18.0.11}, {type: InternalIP, address: "fd00:172:18::b"}]
`

// TestKernelDaemonSet runs the containers of the DaemonSet of each mode on node1 of a lab, and sends the packets of
// every third case, so in either family, and of every one with THOROUGH=1, that needs no options.
func TestKernelDaemonSet(t *testing.T) {
	if _, err := exec.LookPath("runc"); err != nil {
		t.Fatal("runc is not in PATH: apt-get install runc")
	}
	all, err := cases.Load(filepath.Join(repository, "test", "cases"))
	if err != nil {
		t.Fatal(err)
	}
	for _, mode := range []string{"iptables", "nftables"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel() // half of the time packets are awaited that do not arrive
			set, config := objects(t, "overlays/"+mode)
			bench := backendtest.NewBench(t, func() (backend.Backend, error) { return idle{}, nil })
			bench.BackendName = mode
			proxy := start(t, bench, set, config)
			packets := 0
			for i := 0; i < len(all); i += laws.Thorough(3, 1) {
				c := all[i]
				if c.Part("options") != "" || c.Before != nil || len(c.NodeAddresses) > 0 || strings.Contains(c.Manifest(), "kind: Node\n") {
					continue
				}
				packets += len(c.Packets)
				t.Run(c.Name, func(t *testing.T) {
					proxy.serve(t, c)
					bench.Ask(t, c)
				})
			}
			if packets < 40 {
				t.Errorf("sent %d packets, want at least 40", packets)
			}
			t.Logf("%d packets", packets)
		})
	}
}

// proxy is the running DaemonSet's pod.
type proxy struct {
	bench   *backendtest.Bench
	objects string // the folder that it serves
	client  *http.Client
	log     *bytes.Buffer
}

// start runs the pod's init containers to their ends and starts its container.
func start(t *testing.T, bench *backendtest.Bench, set *appsv1.DaemonSet, config *corev1.ConfigMap) *proxy {
	t.Helper()
	root, err := rootfs()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	p := &proxy{bench: bench, objects: filepath.Join(dir, "objects"), log: &bytes.Buffer{}}
	volumes := map[string]string{"objects": p.objects, "config": filepath.Join(dir, "config"), "modules": filepath.Join(dir, "modules"), "xtables-lock": filepath.Join(dir, "lock")}
	for _, name := range []string{"objects", "config", "modules"} {
		if err := os.Mkdir(volumes[name], 0o755); err != nil {
			t.Fatal(err)
		}
	}
	// The pods of both families, and node ports on the node's primary addresses in both modes, as the cases expect.
	text := strings.Replace(config.Data["config.conf"], "[10.244.0.0/16]", `[10.244.0.0/16, "fd00:10:244::/48"]`, 1) +
		"\nnodePortAddresses: [primary]\n"
	for name, body := range map[string]string{
		"config/config.conf": text, "config/kubeconfig.conf": config.Data["kubeconfig.conf"], "lock": "", "objects/node.yaml": node,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(body), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	at := Place{RootFS: root, Network: bench.Lab.Node1.Path(), Volumes: volumes, Env: map[string]string{"NODE_NAME": "node1"}}
	pod := set.Spec.Template.Spec
	for i := range pod.InitContainers {
		out, err := bench.Lab.Node1.Command("runc", p.container(t, at, &pod.InitContainers[i])...).CombinedOutput()
		if err != nil {
			t.Fatalf("init container: %v: %s", err, out)
		}
	}
	main := &pod.Containers[0]
	main.Args = append(main.Args, "--manifests=/objects", "-v=2") // there is no API server
	main.VolumeMounts = append(main.VolumeMounts, corev1.VolumeMount{Name: "objects", MountPath: "/objects", ReadOnly: true})
	cmd := bench.Lab.Node1.Command("runc", p.container(t, at, main)...)
	cmd.Stdout, cmd.Stderr = p.log, p.log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		if err := cmd.Wait(); err != nil {
			t.Errorf("the container ended: %v", err)
		}
		if t.Failed() {
			t.Logf("the container's log:\n%s", p.log)
		}
	})
	p.client = &http.Client{Transport: &http.Transport{DialContext: bench.Lab.Node1.Dial}}
	return p
}

// container writes a bundle and returns the arguments of runc that run it.
func (p *proxy) container(t *testing.T, at Place, c *corev1.Container) []string {
	t.Helper()
	args, err := at.Command(t.TempDir(), fmt.Sprintf("%s-%s-%d", c.Name, p.bench.BackendName, os.Getpid()), c)
	if err != nil {
		t.Fatal(err)
	}
	return args
}

var lastSync = regexp.MustCompile(`(?m)^kubeproxy_sync_proxy_rules_last_timestamp_seconds\{ip_family="(\w+)"\} (\S+)$`)

// serve replaces the proxy's objects by those of a case, and waits until both families have synced.
func (p *proxy) serve(t *testing.T, c *cases.Case) {
	t.Helper()
	written := time.Now()
	if err := os.WriteFile(filepath.Join(p.objects, "case.yaml"), []byte(c.Manifest()), 0o600); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		synced, err := p.synced(written)
		if synced {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the proxy has not synced the objects after a minute: %v\n%s", err, p.log)
		}
	}
}

// synced reports whether both families have been synced since a time.
func (p *proxy) synced(since time.Time) (bool, error) {
	answer, err := p.client.Get("http://" + net.JoinHostPort("127.0.0.1", "10249") + "/metrics")
	if err != nil {
		return false, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return false, err
	}
	families := 0
	for _, match := range lastSync.FindAllSubmatch(text, -1) {
		seconds, err := strconv.ParseFloat(string(match[2]), 64)
		if err != nil {
			return false, err
		}
		if time.Unix(0, int64(seconds*1e9)).After(since) {
			families++
		}
	}
	return families == 2, nil
}
