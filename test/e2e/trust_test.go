//go:build linux

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// acknowledgedAddresses tests a request for a load balancer address: the address is served only while it is in status.
func acknowledgedAddresses(w *world) {
	const vip = "192.0.2.30:80"
	api, ctx := w.client.CoreV1().Services("default"), context.Background()
	w.service("web", "10.96.0.50", "fd00:10:96::32", func(s *corev1.Service) {
		s.Spec.Type = corev1.ServiceTypeLoadBalancer
		s.Spec.LoadBalancerIP = "192.0.2.30"
	})
	w.endpoints("web", w.lab.Node1.Pods[0], w.lab.Node2.Pods[0])
	acknowledge := func(ingress ...corev1.LoadBalancerIngress) {
		w.t.Helper()
		s, err := api.Get(ctx, "web", metav1.GetOptions{})
		w.must(err)
		s.Status.LoadBalancer.Ingress = ingress
		_, err = api.UpdateStatus(ctx, s, metav1.UpdateOptions{})
		w.must(err)
	}
	w.answers(w.lab.Client, netns.TCP, "10.96.0.50:80", "pod1a", "pod2a") // the Service has been programmed
	w.silent(w.lab.Client, netns.TCP, vip)
	acknowledge(corev1.LoadBalancerIngress{IP: "192.0.2.30"})
	w.answers(w.lab.Client, netns.TCP, vip, "pod1a", "pod2a")
	acknowledge()
	w.silent(w.lab.Client, netns.TCP, vip)
	mode := corev1.LoadBalancerIPModeProxy
	acknowledge(corev1.LoadBalancerIngress{IP: "192.0.2.30", IPMode: &mode}, corev1.LoadBalancerIngress{IP: "192.0.2.31"})
	w.answers(w.lab.Client, netns.TCP, "192.0.2.31:80", "pod1a", "pod2a") // the status has been read
	w.silent(w.lab.Client, netns.TCP, vip)
}

// ignored returns the Events about external IPs that kubectl describe shows for a Service.
func (w *world) ignored(name string) []corev1.Event {
	w.t.Helper()
	s, err := w.client.CoreV1().Services("default").Get(context.Background(), name, metav1.GetOptions{})
	w.must(err)
	list, err := w.client.CoreV1().Events("default").SearchWithContext(context.Background(), scheme.Scheme, s)
	w.must(err)
	var found []corev1.Event
	for _, e := range list.Items {
		if e.Reason == "ExternalIPsNotServed" {
			found = append(found, e)
		}
	}
	return found
}

// ignoredSoon waits until a Service has the given number of such Events.
func (w *world) ignoredSoon(name string, count int) []corev1.Event {
	w.t.Helper()
	var found []corev1.Event
	w.eventually("events about external IPs", func() string {
		if found = w.ignored(name); len(found) == count {
			return ""
		}
		return fmt.Sprintf("%d of %d", len(found), count)
	})
	return found
}

// externalIPs checks that external IPs are not served and that this is reported in the log, in a metric, and in one Event
// of the Service, which is not repeated after a restart or an unrelated change.
func externalIPs(w *world) {
	w.service("web", "10.96.0.60", "fd00:10:96::3c", func(s *corev1.Service) { s.Spec.ExternalIPs = []string{"192.0.2.20"} })
	w.endpoints("web", w.lab.Node1.Pods[0], w.lab.Node2.Pods[0])
	w.answers(w.lab.Client, netns.TCP, "10.96.0.60:80", "pod1a", "pod2a")
	w.silent(w.lab.Client, netns.TCP, "192.0.2.20:80")
	first := w.ignoredSoon("web", 1)[0]
	if first.Type != "Warning" || first.ReportingController != "kube-proxy" || !strings.Contains(first.Message, "192.0.2.20") {
		w.t.Errorf("the event is %+v", first)
	}
	w.metric(`kubeproxy_services_with_external_ips{served="false"} 1`, `kubeproxy_services_with_external_ips{served="true"} 0`)

	w.stop()
	before := len(w.lines("external ips are not served"))
	w.start("proxy")
	w.healthy()
	logged := w.lines("external ips are not served")
	if len(logged) != before+1 || !strings.Contains(logged[before], "services=1") {
		w.t.Errorf("the start logged %q", logged[before:])
	}
	w.change("web", func(s *corev1.Service) { s.Spec.Ports[0].Port = 81 })
	w.answers(w.lab.Client, netns.TCP, "10.96.0.60:81", "pod1a", "pod2a")
	// Events are published in order: when this one exists, an earlier one would exist too.
	w.change("web", func(s *corev1.Service) { s.Spec.ExternalIPs = append(s.Spec.ExternalIPs, "192.0.2.21") })
	for _, e := range w.ignoredSoon("web", 2) {
		if e.Name == first.Name && e.ResourceVersion != first.ResourceVersion {
			w.t.Errorf("the first event was published again: %+v", e)
		}
	}
	w.change("web", func(s *corev1.Service) { s.Spec.ExternalIPs = nil })
	w.metric(`kubeproxy_services_with_external_ips{served="false"} 0`)
}

// metric waits until the metrics contain these lines.
func (w *world) metric(lines ...string) {
	w.t.Helper()
	w.eventually("metrics", func() string {
		_, body := w.get("http://" + metricsAddress + "/metrics")
		for _, line := range lines {
			if !strings.Contains(body, "\n"+line+"\n") {
				return "no " + line
			}
		}
		return ""
	})
}

// externalIPsServed restarts the proxy with the gate on and off again: external IPs are served and no longer served, and
// no other connection fails.
func externalIPsServed(w *world) {
	end := w.stream()
	w.service("outside", "10.96.0.61", "fd00:10:96::3d", func(s *corev1.Service) { s.Spec.ExternalIPs = []string{"192.0.2.20"} })
	w.endpoints("outside", w.lab.Node1.Pods[0])
	w.answers(w.lab.Client, netns.TCP, "10.96.0.61:80", "pod1a")
	w.silent(w.lab.Client, netns.TCP, "192.0.2.20:80")
	w.stop()
	w.start("proxy", "--feature-gates=AllowServiceExternalIPs=true")
	w.healthy()
	w.answers(w.lab.Client, netns.TCP, "192.0.2.20:80", "pod1a")
	w.metric(`kubeproxy_services_with_external_ips{served="false"} 0`, `kubeproxy_services_with_external_ips{served="true"} 1`)
	if logged := w.lines("feature gate allowserviceexternalips is deprecated"); len(logged) != 1 {
		w.t.Errorf("the deprecation is logged %d times, want once", len(logged))
	}
	w.stop()
	w.start("proxy")
	w.healthy()
	w.silent(w.lab.Client, netns.TCP, "192.0.2.20:80")
	end()
}

// auditCluster runs the audit as a user with list permission only.
func auditCluster(w *world) {
	ctx := context.Background()
	w.service("outside", "10.96.0.70", "fd00:10:96::46", func(s *corev1.Service) { s.Spec.ExternalIPs = []string{"192.0.2.20", "172.18.0.11"} })
	kubeconfig, err := w.cluster.Kubeconfig("auditor")
	w.must(err)
	run := func() (code int, out, errs string) {
		cmd := w.lab.Node1.Command(w.binary, "audit", "--kubeconfig="+kubeconfig, "-o=json")
		var stdout, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		w.must(cmd.Start())
		_ = cmd.Wait() // the exit code is checked instead
		return cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()
	}
	if code, out, errs := run(); code != 2 || out != "" || !strings.Contains(errs, "forbidden") {
		w.t.Errorf("without rights: exit code %d, %s\n%s", code, out, errs)
	}
	text, err := os.ReadFile(filepath.Join("..", "..", "build", "manifests", "audit-role.yaml"))
	w.must(err)
	var role rbacv1.ClusterRole
	w.must(yaml.UnmarshalStrict(text, &role))
	_, err = w.client.RbacV1().ClusterRoles().Create(ctx, &role, metav1.CreateOptions{})
	w.must(err)
	_, err = w.client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "auditor"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "auditor"}},
	}, metav1.CreateOptions{})
	w.must(err)
	w.eventually("the audit", func() string { // it takes a moment until the role applies
		code, out, errs := run()
		var report struct {
			Services, Nodes int
			Findings        []struct{ Code, Name, Message, Manifest string }
		}
		if code != 1 || json.Unmarshal([]byte(out), &report) != nil {
			return fmt.Sprintf("exit code %d, %s\n%s", code, out, errs)
		}
		if len(report.Findings) != 2 || report.Findings[0].Code != "ExternalIPCapture" || report.Findings[1].Code != "ExternalIPs" ||
			report.Findings[1].Name != "outside" || report.Services != 2 || report.Nodes != 1 {
			w.t.Errorf("the report is %+v", report)
		}
		w.replace(report.Findings[1].Manifest)
		return ""
	})
	if code, out, errs := run(); code != 0 || strings.Contains(out, "ExternalIP") {
		w.t.Errorf("after the manifest was applied: exit code %d, %s\n%s", code, out, errs)
	}
}

// replace applies the audit's replacement manifest, like the first kubectl apply.
func (w *world) replace(manifest string) {
	w.t.Helper()
	var service corev1.Service
	w.must(yaml.UnmarshalStrict([]byte(manifest), &service))
	w.change(service.Name, func(s *corev1.Service) {
		clusterIP, clusterIPs := s.Spec.ClusterIP, s.Spec.ClusterIPs
		s.Spec = service.Spec
		s.Spec.ClusterIP, s.Spec.ClusterIPs = clusterIP, clusterIPs
	})
}

// guide follows docs/external-ips.md, from the Service with external IPs to one with an address in status, with the
// manifests and the patch of that document.
func guide(w *world) {
	ctx := w.t.Context()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "external-ips.md"))
	w.must(err)
	var services []corev1.Service
	for _, block := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		for document := range strings.SplitSeq(block[1], "---\n") {
			var s corev1.Service
			if strings.Contains(document, "kind: Service\n") {
				w.must(yaml.UnmarshalStrict([]byte(document), &s))
				services = append(services, s)
			}
		}
	}
	patch := regexp.MustCompile(`-p '(.*)'`).FindStringSubmatch(string(text))
	if len(services) != 2 || patch == nil {
		w.t.Fatalf("the guide has %d Services, want the one before and the one after, and the patch %q", len(services), patch)
	}
	api := w.client.CoreV1().Services("default")
	_, err = api.Create(ctx, &services[0], metav1.CreateOptions{})
	w.must(err)
	w.endpoints("web", w.lab.Node1.Pods[0], w.lab.Node2.Pods[0])
	w.ignoredSoon("web", 1)
	w.silent(w.lab.Client, netns.TCP, "192.0.2.10:80")

	w.change("web", func(s *corev1.Service) {
		written := services[1].Spec
		written.ClusterIP, written.ClusterIPs = s.Spec.ClusterIP, s.Spec.ClusterIPs
		s.Spec = written
	})
	w.metric(`kubeproxy_services_with_external_ips{served="false"} 0`)
	w.silent(w.lab.Client, netns.TCP, "192.0.2.10:80")
	_, err = api.Patch(ctx, "web", types.MergePatchType, []byte(patch[1]), metav1.PatchOptions{}, "status")
	w.must(err)
	w.answers(w.lab.Client, netns.TCP, "192.0.2.10:80", "pod1a", "pod2a")
}
