//go:build linux

package image

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// TestKernelNotGranted starts containers that lack something that the manifests grant, and checks that the first line of the
// error names what is missing and the line of the manifest that grants it.
func TestKernelNotGranted(t *testing.T) {
	root, err := rootfs()
	if err != nil {
		t.Fatal(err)
	}
	lab := netns.Start(t, netns.Options{})
	// The kubelet's hint that this node uses the legacy variant, which takes the lock.
	if out, err := lab.Node2.Command("iptables-legacy", "-w", "-t", "mangle", "-N", "KUBE-IPTABLES-HINT").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	without := func(name corev1.Capability) func(*corev1.Container) {
		return func(c *corev1.Container) {
			caps := c.SecurityContext.Capabilities
			caps.Add = slices.DeleteFunc(caps.Add, func(a corev1.Capability) bool { return a == name })
		}
	}
	for _, test := range []struct {
		name, mode string
		node       *netns.Node
		init       bool
		change     func(*corev1.Container)
		rootfs     string
		want       []string
	}{
		{"NET_ADMIN", "nftables", lab.Node1, false, without("NET_ADMIN"), root, []string{"CAP_NET_ADMIN is missing", "capabilities.add: [NET_ADMIN]", "container kube-proxy"}},
		{"NET_ADMIN", "iptables", lab.Node1, false, without("NET_ADMIN"), root, []string{"CAP_NET_ADMIN is missing", "capabilities.add: [NET_ADMIN]", "container kube-proxy"}},
		{"NET_RAW, legacy", "iptables", lab.Node2, false, without("NET_RAW"), root, []string{"CAP_NET_RAW is missing", "capabilities.add: [NET_RAW]", "container kube-proxy"}},
		{"xtables.lock, legacy", "iptables", lab.Node2, false, func(c *corev1.Container) {
			c.VolumeMounts = slices.DeleteFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == "xtables-lock" })
		}, copied(t, root, func(dir string) error { // runc may have created the file for another container
			return os.RemoveAll(filepath.Join(dir, "run", "xtables.lock"))
		}), []string{"/run/xtables.lock", "volumeMounts", "xtables-lock", "container kube-proxy"}},
		{"writable /proc/sys", "nftables", lab.Node1, true, func(c *corev1.Container) { *c.SecurityContext.Privileged = false }, root,
			[]string{"/proc/sys is read-only", "privileged: true", "init container"}},
		{"architecture", "nftables", lab.Node1, false, func(*corev1.Container) {}, copied(t, root, foreign), []string{"exec format error"}},
	} {
		t.Run(test.mode+"/"+test.name, func(t *testing.T) {
			set, config := objects(t, "overlays/"+test.mode)
			pod := set.Spec.Template.Spec
			c := &pod.Containers[0]
			if test.init {
				c = &pod.InitContainers[0]
			} else {
				c.Args = append(c.Args, "--manifests=/var/lib/kube-proxy/objects")
			}
			test.change(c)
			dir := t.TempDir()
			at := Place{RootFS: test.rootfs, Network: test.node.Path(), Env: map[string]string{"NODE_NAME": "node1"}, Volumes: map[string]string{}}
			for _, v := range pod.Volumes {
				at.Volumes[v.Name] = filepath.Join(dir, v.Name)
				if err := os.Mkdir(at.Volumes[v.Name], 0o755); err != nil {
					t.Fatal(err)
				}
			}
			lock := filepath.Join(dir, "lock")
			at.Volumes["xtables-lock"] = lock
			// The init container writes a setting of connection tracking that belongs to the network namespace.
			timeouts := map[bool]string{true: "23h", false: "0s"}[test.init]
			text := config.Data["config.conf"] + fmt.Sprintf("\nlinux: {conntrack: {tcpEstablishedTimeout: %s, tcpCloseWaitTimeout: 0s}}\n", timeouts)
			for name, body := range map[string]string{lock: "", filepath.Join(at.Volumes["config"], "config.conf"): text} {
				if err := os.WriteFile(name, []byte(body), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Mkdir(filepath.Join(at.Volumes["config"], "objects"), 0o755); err != nil {
				t.Fatal(err)
			}
			line, log := firstError(t, test.node, at, c)
			for _, word := range test.want {
				if !strings.Contains(line, word) {
					t.Errorf("the first line of an error is\n%s\nwant %q; the log is\n%s", line, word, log)
				}
			}
		})
	}
}

// errorLine matches lines of errors: of the log, where an error of several lines follows its message, of the command line,
// and of runc.
var errorLine = regexp.MustCompile(`(?m)^E\d{4}.*err=<\n(?:\t.*\n)+ >.*\n|^(?:E\d{4}|error:|.*level=error|exec /).*\n`)

// firstError runs a container until its log has a line of an error, and returns that and the log.
func firstError(t *testing.T, node *netns.Node, at Place, c *corev1.Container) (line, log string) {
	t.Helper()
	args, err := at.Command(t.TempDir(), fmt.Sprintf("refused-%d", os.Getpid()), c)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "log")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	cmd := node.Command("runc", args...)
	cmd.Stdout, cmd.Stderr = file, file
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // the log is checked
		close(ended)
	}()
	for deadline := time.Now().Add(time.Minute); line == "" && time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		log = string(text)
		line = errorLine.FindString(log)
	}
	_ = cmd.Process.Signal(os.Interrupt) // it may have ended
	<-ended
	return line, log
}

// copied returns a changed copy of a root file system.
func copied(t *testing.T, root string, change func(dir string) error) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "rootfs")
	for _, err := range []error{exec.Command("cp", "-al", root, dir).Run(), change(dir)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// foreign turns the kube-proxy of a root file system into a program of another architecture.
func foreign(dir string) error {
	name := filepath.Join(dir, "usr", "local", "bin", "kube-proxy")
	data, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	data[18] ^= 0xff // e_machine of the ELF header
	// The file is a link to one that others use.
	return errors.Join(os.Remove(name), os.WriteFile(name, data, 0o755)) //nolint:gosec // a program
}
